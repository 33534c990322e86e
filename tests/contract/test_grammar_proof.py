"""The proof before a rank sees a grammar: dead ends, slow masks and invalid texts, found by real walks.

vLLM 43920, 51660, 24107: dead ends, and masks that take seconds, were found by the engine, which then ended.
"""

import itertools
import json
import os
import time
from collections.abc import Iterable
from typing import Any

import pytest
from grammarbench import corpus

from guided_contract.choices import BOUND
from guided_contract.errors import GuidedError
from guided_grammar.backend import Compiled as CompiledGrammar
from guided_grammar.matching import Matcher, SpentError
from guided_sidecar.grammar.compile import library_texts, proof
from guided_sidecar.grammar.compile.compilation import Compiler
from guided_sidecar.grammar.worker_messages import Compiled
from support import grammars
from support.worker_and_rank import WorkerAndRank

SPARSE = int(os.environ.get("EVERY", "20"))  # 1: all of the benchmark's schemas
NO_VALUE = {"grammar_unsupported", "grammar_invalid", "grammar_dead_end"}
PERSON = {"type": "object", "properties": {"name": {"type": "string", "minLength": 3, "maxLength": 9}}}


@pytest.fixture(scope="module")
def served() -> WorkerAndRank:
    return WorkerAndRank.of("tiny")


class SlowBackend:
    """A library whose masks take 30 ms of CPU time each, from some fill on, or of some fills alone."""

    def __init__(self, backend: Any, fills: int, slow: int = 1 << 30) -> None:
        self._backend = backend
        self._fills = range(fills, fills + slow)
        self.stop_tokens = backend.stop_tokens
        self.is_worn = False

    def compile(self, *arguments: Any, **options: Any) -> CompiledGrammar:
        compiled = self._backend.compile(*arguments, **options)
        made, fills = compiled.matcher, self._fills

        def matcher() -> Matcher:
            native = made()
            native.fill = _burning(native.fill, fills)
            return native

        compiled.matcher = matcher
        return compiled


def _burning(fill: Any, slow: range) -> Any:
    fills = itertools.count()

    def burn(mask: Any, row: int) -> None:
        start, is_slow = time.thread_time(), next(fills) in slow
        while is_slow and time.thread_time() < start + 0.03:
            pass
        fill(mask, row)

    return burn


def slowed(served: WorkerAndRank, **slow: SlowBackend) -> Compiler:
    """Return a compiler some of whose libraries are slow."""
    return Compiler({**served.backends, **slow}, served.words)


@pytest.mark.parametrize("whitespace", [BOUND, 0], ids=["flexible", "compact"])
def test_a_walk_comes_to_the_end_of_a_text(served: WorkerAndRank, whitespace: int) -> None:
    """Of nearly every schema that is served; only then is anything judged."""
    texts, refused = [], []
    entries = corpus.corpus(None)[::SPARSE]
    for entry in entries:
        if refusal := served.refusal(entry.kind, entry.text, whitespace=whitespace):
            assert refusal.code in NO_VALUE
            refused.append(refusal.path)
        else:
            texts.append(served.compiler.proofs[-1].texts)
    assert len(refused) <= 0.1 * len(entries), refused
    # A walk through strings that only a long text ends is cut by its CPU time.
    assert sum(map(bool, texts)) >= 0.98 * len(texts) - 1


@pytest.mark.parametrize("asked", [(), ("xgrammar",)], ids=["Auto", "xgrammar"])
@pytest.mark.parametrize(("kind", "spec"), grammars.AMBIGUOUS.values(), ids=grammars.AMBIGUOUS)
def test_an_ambiguous_grammar_is_refused_or_cheap(
    served: WorkerAndRank, kind: Any, spec: str, asked: Any
) -> None:
    """Upstream's scheduler stands still for minutes on such a request; each of our ranks would."""
    try:
        done = served.compiled(kind, spec, *asked)
    except GuidedError as refusal:
        assert refusal.code in {"grammar_slow", "grammar_dead_end", "grammar_unsupported"}  # noqa: PT017 - as good
        return
    text = '"' * (kind == "json") + "b" * 300 * ("bb" in spec) + "a" * 512
    # Each with a lexer of its own: a text may spend it.
    loaded = (served.backends[done.backend].load(done.spec) for _ in range(3))
    walks = [accept_times(one.matcher(), served.spelled(text)) for one in loaded]
    # What the machine did meanwhile is not in the quickest of three.
    assert max(map(min, zip(*walks, strict=True))) < 0.02


def accept_times(matcher: Any, tokens: Iterable[int]) -> list[float]:
    """Return the CPU seconds of each token until one is refused or takes too long."""
    times = []
    for token in tokens:
        start = time.thread_time()
        try:
            accepted = matcher.accept((token,))
        except SpentError:  # what that may take a rank has a bound of its own: test_spent_lexers.py
            break
        times.append(time.thread_time() - start)
        if not accepted or times[-1] > 1:  # which fails; the next ones take minutes
            break
    return times


@pytest.mark.parametrize("fills", [0, 2])
def test_a_slow_mask_sends_a_grammar_to_the_other_backend(served: WorkerAndRank, fills: int) -> None:
    compiler = slowed(served, guidance=SlowBackend(served.backends["guidance"], fills))
    told = list[Compiled]()
    schema = {"type": "object", "properties": {"a": {"type": "boolean"}}}

    done = compiler.run(served.job("json", schema), told.append)

    assert done.backend == "xgrammar"
    assert [one.error_code for one in compiler.proofs] == ["grammar_slow", ""]
    assert [one.done.backend for one in told] == ["guidance", "xgrammar"]
    assert (told[1].done.spec, told[1].done.positions) == (done.spec, done.positions)


def test_what_is_compiled_is_told_before_it_is_proven(
    monkeypatch: pytest.MonkeyPatch, served: WorkerAndRank
) -> None:
    order: list[str] = []
    prove = served.compiler._prover.prove
    monkeypatch.setattr(
        served.compiler._prover, "prove", lambda *given: order.append("proof") or prove(*given)
    )

    def run(**fields: Any) -> Any:
        job = served.job("json", PERSON, "xgrammar", **fields)
        return served.compiler.run(job, lambda told: order.append(told.done.backend))

    assert run().proof_ns > 0
    assert order == ["xgrammar", "proof"]
    assert run(is_proven=False).proof_ns == 0
    assert len(order) == 2, "where nothing is proven, the answer itself is what ranks load"


def test_a_grammar_that_is_slow_with_every_backend_is_refused(served: WorkerAndRank) -> None:
    slow = {name: SlowBackend(backend, 1) for name, backend in served.backends.items()}

    with pytest.raises(GuidedError) as refusal:
        slowed(served, **slow).run(served.job("json", PERSON))

    assert refusal.value.code == "grammar_slow"
    assert "the limit is 10 ms" in refusal.value.message


def test_one_slow_fill_is_the_machines(served: WorkerAndRank) -> None:
    """The second fill of the same mask is what counts: what a library makes once, it makes on ranks once."""
    once = SlowBackend(served.backends["guidance"], 0, slow=1)
    assert slowed(served, guidance=once).run(served.job("json", {"type": "boolean"})).backend == "guidance"


def test_a_text_that_the_schema_forbids_is_found(
    monkeypatch: pytest.MonkeyPatch, served: WorkerAndRank
) -> None:
    """As a library would show that ignores what no rule knows of."""
    monkeypatch.setattr(library_texts, "_meant", lambda _form, _job, _backend: {"type": "boolean"})

    refusal = served.refusal("json", {"enum": ["a"]})
    assert refusal is not None
    assert (refusal.code, refusal.path) == ("grammar_unsupported", "$.enum")

    assert served.compiled("json", {"enum": ["a"]}, is_proven=False).backend == "guidance"
    assert served.compiler.proofs == []
    monkeypatch.undo()
    assert served.compiled("json", {"type": "number", "multipleOf": 7, "minimum": 0}).backend == "guidance"


def test_a_grammar_without_a_finite_text_is_refused(served: WorkerAndRank) -> None:
    spec = 'root ::= "a" [0-9] b\nb ::= b "c"'
    refusal = served.refusal("grammar", spec, "xgrammar")

    assert refusal is not None
    assert (refusal.code, refusal.path) == ("grammar_dead_end", None)
    assert served.compiled("grammar", spec, "xgrammar", is_proven=False).backend == "xgrammar"


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the texts that walks come to the end of."""
    texts: list[str] = []
    judge = proof._invalid
    monkeypatch.setattr(
        proof, "_invalid", lambda schema, text, name: texts.append(text) or judge(schema, text, name)
    )
    return texts


@pytest.mark.parametrize("backend", ["xgrammar", "guidance"])
def test_walks_come_to_an_end_within_counted_bounds(
    judged: list[str], served: WorkerAndRank, backend: Any
) -> None:
    for number in range(5):
        schema = {**PERSON, "required": ["name"], "description": str(number)}
        assert served.compiled("json", schema, backend).positions

    assert len(judged) > 5
    assert all(3 <= len(json.loads(text)["name"]) <= 9 for text in judged)


def test_walks_are_always_the_same(judged: list[str], served: WorkerAndRank) -> None:
    """A verdict drawn by a grammar's key changed with a description and with each release of ours."""
    served.compiled("json", PERSON)
    first = judged.copy()
    served.compiled("json", {**PERSON, "description": "the same, under another key"})

    assert first
    assert judged == first * 2


def test_what_ranks_hold_of_a_short_text_counts(served: WorkerAndRank) -> None:
    """An array of 16,000 places is 60 bytes of schema and 12 MB in each rank."""
    schema = {"type": "array", "items": {"type": "null"}, "maxItems": 16_000}
    assert served.compiled("json", schema, is_proven=False).size_bytes > 5_000_000
