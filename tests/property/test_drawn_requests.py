"""Drawn requests of every kind on a real pod: each answer is one that its own constraint allows.

SEED=n draws others; `make soak SEED=0 N=500` sends those of a failure again, and with REQUEST=n one of them.
One rank, because two that wait for each other leave little of two cores to the grammar workers; the soak has
two, and so has TENSOR=2.
"""

import os
from collections.abc import Iterator

import pytest

from support import chi_square
from support.pod import start_pod
from support.soak import drawing, session
from support.soak.requests import Request, drawn
from support.soak.session import Session

pytestmark = [pytest.mark.engine, pytest.mark.timeout(1200)]

SEED = int(os.environ.get("SEED") or 0)
TENSOR = int(os.environ.get("TENSOR") or 1)
REQUESTS = 300
MOST_REFUSED = 0.15
ALPHA = 1e-4
DRAWS = 5_000
OTHER = 1.3  # temperature


@pytest.fixture(scope="module")
def soaked() -> Iterator[Session]:
    pod = start_pod(session.manifest(tensor=TENSOR), configured=session.CONFIGURED)
    try:
        yield Session(pod)
    finally:
        pod.stop()


def test_every_answer_is_what_its_constraint_allows(
    soaked: Session, capsys: pytest.CaptureFixture[str]
) -> None:
    counts = soaked.counts
    soaked.run(SEED, drawn(SEED, REQUESTS))
    with capsys.disabled():
        print(f"\nSEED={SEED}: {dict(counts)}")  # noqa: T201 - to send them again

    assert soaked.pod.child.poll() is None, soaked.pod.said()[-6000:]
    assert not soaked.faults, "\n".join(soaked.faults)
    # That this says something: most were answered, by both libraries in the same batches, many to their end.
    assert counts["requests"] == REQUESTS
    assert counts["refused"] < MOST_REFUSED * counts["guided"]
    assert counts["answered, by guidance"] > 20
    assert counts["answered, by xgrammar"] > 20
    assert counts["ended by the model"] > 120
    assert counts["cut by length or stop string"] > 30
    assert counts["aborted by the client"] > 3
    assert soaked.desyncs() == 0
    assert (soaked.compared() > counts["tokens"] / 2) == (TENSOR > 1)


def test_tokens_are_distributed_as_upstreams(soaked: Session) -> None:
    """Against the engine's own unguided log-probabilities under a fresh matcher's mask, as upstream samples.

    Of the second token, which a draft was proposed for; a byte that is one token alone stands before it.
    """
    request = Request(prompt="Write the words", kind="regex", constraint="\x01[a-z ]{1,9}", sampling={})
    prompt, before = drawing.prompt_tokens(soaked.url, request), soaked.judge.tokens("\x01")
    logprobs = drawing.logprobs(soaked.url, [*prompt, *before])
    allowed = soaked.judge.allowed(request, before)
    tokens = drawing.tokens_at(soaked.url, request, len(before), DRAWS)

    assert len(tokens) == DRAWS
    assert len(allowed) > 100
    assert chi_square.excess(tokens, chi_square.tempered(logprobs, allowed), ALPHA) < 1
    # Draws enough to tell it from the nearly right:
    assert chi_square.excess(tokens, chi_square.tempered(logprobs, allowed, OTHER), ALPHA) > 1
