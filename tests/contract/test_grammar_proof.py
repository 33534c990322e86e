"""The proof before a rank sees a grammar: dead ends, slow masks and invalid texts, found by real walks.

vLLM 43920, 51660, 24107: dead ends, and masks that take seconds, were found by the engine, which then ended.
"""

import itertools
import os
import time
from collections.abc import Callable, Iterable
from typing import Any

import grammar_corpus
import pytest

from guided_contract.choices import BOUND
from guided_contract.errors import GuidedError
from guided_grammar.matching import Matcher, SpentError
from guided_sidecar.grammar.compile import library_texts, proof_walk
from guided_sidecar.grammar.worker_messages import Compiled, Done
from support import grammars
from support.worker_and_rank import WorkerAndRank

SPARSE = int(os.environ.get("EVERY", "20"))  # 1: all of the benchmark's schemas
NO_VALUE = {"grammar_unsupported", "grammar_invalid", "grammar_dead_end"}
PERSON = {"type": "object", "properties": {"name": {"type": "string", "minLength": 3, "maxLength": 9}}}


class Served(WorkerAndRank):
    def run(
        self,
        spec: Any,
        *backends: Any,
        kind: Any = "json",
        tell: Callable[[Compiled], Any] = lambda _message: None,
        **fields: Any,
    ) -> Done:
        asked = backends or ("xgrammar", "guidance")
        return self.compiler.run(self.job(kind, spec, *asked, **fields), tell)


@pytest.fixture
def served() -> Served:
    return Served.of("tiny")


def slow_down(
    monkeypatch: pytest.MonkeyPatch, backend: Any, slow: range, seconds: float = 0.03, call: str = "fill"
) -> None:
    """Have some masks (or other calls) of a library take more CPU time: those with these numbers."""
    compile_soon = backend.compile

    def compile_slow(*arguments: Any, **options: Any) -> Any:
        compiled = compile_soon(*arguments, **options)
        made = compiled.matcher

        def matcher() -> Matcher:
            native = made()
            run, calls = getattr(native, call), itertools.count()

            def burn(*arguments: Any) -> Any:
                until_s = time.thread_time() + seconds * (next(calls) in slow)
                while time.thread_time() < until_s:
                    pass
                return run(*arguments)

            setattr(native, call, burn)
            return native

        compiled.matcher = matcher
        return compiled

    monkeypatch.setattr(backend, "compile", compile_slow)


@pytest.mark.parametrize("whitespace", [BOUND, 0], ids=["flexible", "compact"])
def test_a_walk_comes_to_the_end_of_a_text(served: Served, whitespace: int) -> None:
    """Of nearly every schema that is served; only then is anything judged."""
    texts, refused = [], []
    entries = grammar_corpus.corpus()[::SPARSE]
    for entry in entries:
        try:
            served.run(entry.text, kind=entry.kind, whitespace=whitespace)
        except GuidedError as refusal:
            assert refusal.code in NO_VALUE  # noqa: PT017 - said with its path, and not wrong
            refused.append(refusal.path)
        else:
            texts.append(served.compiler.proofs[-1].texts)
    assert len(refused) <= 0.1 * len(entries), refused
    # A walk through strings that only a long text ends is cut by its CPU time.
    assert sum(map(bool, texts)) >= 0.98 * len(texts)


@pytest.mark.parametrize("asked", [(), ("xgrammar",)], ids=["Auto", "xgrammar"])
@pytest.mark.parametrize(("kind", "spec"), grammars.AMBIGUOUS.values(), ids=grammars.AMBIGUOUS)
def test_an_ambiguous_grammar_is_refused_or_cheap(served: Served, kind: Any, spec: str, asked: Any) -> None:
    """Upstream's scheduler stands still for minutes on such a request; each of our ranks would."""
    try:
        done = served.run(spec, *asked, kind=kind)
    except GuidedError as refusal:
        assert refusal.code in {"grammar_slow", "grammar_dead_end", "grammar_unsupported"}  # noqa: PT017 - as good
        return
    backend = served.backends[done.backend]
    tokens = backend.tokens()
    texts = (b'"',) * (kind == "json") + (b"b",) * 300 * ("bb" in spec) + (b"a",) * 512
    # Each with a lexer of its own: a text may spend it.
    loaded = (backend.load(done.spec) for _ in range(3))
    walks = [accept_times(one.matcher(), map(tokens.index, texts)) for one in loaded]
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


def test_an_ambiguous_grammar_is_refused_by_a_slow_cpu_too(
    monkeypatch: pytest.MonkeyPatch, served: Served
) -> None:
    monkeypatch.setattr(proof_walk, "_REPEATS_BUDGET_S", 0)  # as if the first repeat had used it up
    kind, spec = grammars.AMBIGUOUS["ebnf"]
    with pytest.raises(GuidedError, match="grammar_slow"):
        served.run(spec, "xgrammar", kind=kind)


def test_an_ambiguous_grammar_is_refused_though_its_first_repeats_are_interrupted(
    monkeypatch: pytest.MonkeyPatch, served: Served
) -> None:
    slow_down(monkeypatch, served.backends["xgrammar"], range(5, 6), seconds=0.008, call="accept")
    kind, spec = grammars.AMBIGUOUS["sum"]
    with pytest.raises(GuidedError, match="grammar_slow"):
        served.run(spec, "xgrammar", kind=kind)


@pytest.mark.parametrize("fills", [0, 2])
def test_a_slow_mask_sends_a_grammar_to_the_other_backend(
    monkeypatch: pytest.MonkeyPatch, served: Served, fills: int
) -> None:
    slow_down(monkeypatch, served.backends["guidance"], range(fills, 1_000_000))
    told: list[Compiled] = []
    done = served.run({"type": "object", "properties": {"a": {"type": "boolean"}}}, tell=told.append)
    assert done.backend == "xgrammar"
    assert [one.error_code for one in served.compiler.proofs] == ["grammar_slow", ""]
    assert [one.done.backend for one in told] == ["guidance", "xgrammar"]
    assert (told[1].done.spec, told[1].done.positions) == (done.spec, done.positions)


def test_one_slow_fill_is_the_machines(monkeypatch: pytest.MonkeyPatch, served: Served) -> None:
    """The second fill of the same mask is what counts: what a library makes once, it makes on ranks once."""
    slow_down(monkeypatch, served.backends["guidance"], range(1))
    assert served.run({"type": "boolean"}).backend == "guidance"


def test_what_is_compiled_is_told_before_it_is_proven(
    monkeypatch: pytest.MonkeyPatch, served: Served
) -> None:
    order: list[str] = []
    prover = served.compiler._prover
    prove = prover.prove
    monkeypatch.setattr(prover, "prove", lambda *given: order.append("proof") or prove(*given))
    for is_proven in (True, False):
        served.run(PERSON, "xgrammar", tell=lambda told: order.append(told.done.backend), is_proven=is_proven)
        assert order == ["xgrammar", "proof"], "not proven, the answer itself is what ranks load"


def test_what_ranks_hold_of_a_short_text_counts(served: Served) -> None:
    """An array of 16,000 places is 60 bytes of schema and 12 MB in each rank."""
    done = served.run({"type": "array", "items": {"type": "null"}, "maxItems": 16_000}, is_proven=False)
    assert done.size_bytes > 1_000_000


def test_a_text_that_the_schema_forbids_is_found(monkeypatch: pytest.MonkeyPatch, served: Served) -> None:
    """As a library would show that ignores what no rule knows of."""
    monkeypatch.setattr(library_texts, "_meant", lambda _form, _job, _backend: {"type": "boolean"})
    with pytest.raises(GuidedError) as refusal:
        served.run({"enum": ["a"]})
    assert (refusal.value.code, refusal.value.path) == ("grammar_unsupported", "$.enum")
    assert served.run({"enum": ["a"]}, is_proven=False).backend == "guidance"
    monkeypatch.undo()
    assert served.run({"type": "number", "multipleOf": 7, "minimum": 0}).backend == "guidance"


def test_a_grammar_without_a_finite_text_is_refused(served: Served) -> None:
    spec = 'root ::= "a" [0-9] b\nb ::= b "c"'
    with pytest.raises(GuidedError) as refusal:
        served.run(spec, "xgrammar", kind="grammar")
    assert (refusal.value.code, refusal.value.path) == ("grammar_dead_end", None)
    assert served.run(spec, "xgrammar", kind="grammar", is_proven=False).backend == "xgrammar"
