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
from support.soak import __main__ as soak
from support.soak import drawing, session
from support.soak.requests import Request, drawn
from support.soak.session import Session

pytestmark = [pytest.mark.engine, pytest.mark.timeout(1200)]

SEED = int(os.environ.get("SEED") or 0)
TENSOR = int(os.environ.get("TENSOR") or 1)
REQUESTS = 500
MOST_REFUSED = 0.15
ALPHA = 1e-4


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
    tally = soaked.tally
    soaked.run(SEED, drawn(SEED, REQUESTS))
    with capsys.disabled():
        print(f"\nSEED={SEED}: {'; '.join(map(': '.join, tally.rows()))}")  # noqa: T201 - to send them again

    assert soaked.pod.child.poll() is None, soaked.pod.said()[-6000:]
    assert not tally.faults, "\n".join(map(str, tally.faults))
    # That this says something: most were answered, by both backends in the same batches, many to their end.
    assert tally.requests == REQUESTS
    assert tally.refused_share < MOST_REFUSED
    assert tally.backends["guidance"] > 200
    assert tally.backends["xgrammar"] > 20
    assert tally.backends.get("unknown", 0) < 10
    assert tally.whole > 200
    assert tally.cut > 50
    assert tally.aborted > 5
    assert soaked.desyncs() == 0
    assert (soaked.compared() > tally.tokens / 2) == (TENSOR > 1)


def test_the_soak_sends_a_batch_and_one_of_its_requests_again(
    soaked: Session, capsys: pytest.CaptureFixture[str]
) -> None:
    assert soak.again(Session(soaked.pod), SEED, 5, None) == 0
    assert soak.again(Session(soaked.pod), SEED, 5, 3) == 0
    assert "desyncs" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("first", "draws", "other_temperature"),
    [("", 20_000, 1.1), ("\x01", 5_000, 1.3)],
    ids=["sampled", "drafted"],
)
def test_tokens_are_distributed_as_upstreams(
    soaked: Session, first: str, draws: int, other_temperature: float
) -> None:
    """Against the engine's own unguided log-probabilities under a fresh matcher's mask, as upstream samples.

    The second token is one that a draft was proposed for; a byte that is one token alone stands before it.
    """
    request = Request(prompt="Write the words", kind="regex", constraint=f"{first}[a-z ]{{1,9}}", sampling={})
    prompt, before = (
        drawing.prompt_tokens(soaked.url, request),
        [] if not first else soaked.judge.tokens(first),
    )
    logprobs = drawing.logprobs(soaked.url, [*prompt, *before])
    allowed = soaked.judge.allowed(request, "guidance", before)

    drawn_tokens = drawing.tokens_at(soaked.url, request, len(before), draws)

    assert len(drawn_tokens) == draws
    assert len(allowed) > 100
    assert chi_square.excess(drawn_tokens, chi_square.tempered(logprobs, allowed), ALPHA) < 1
    # Draws enough to tell it from the nearly right:
    assert (
        chi_square.excess(drawn_tokens, chi_square.tempered(logprobs, allowed, other_temperature), ALPHA) > 1
    )
