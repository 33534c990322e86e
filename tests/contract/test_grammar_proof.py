"""The proof before a rank sees a grammar: dead ends, slow masks and invalid texts, found by real walks.

vLLM 43920, 51660, 24107: dead ends, and masks that take seconds, were found by the engine, which then ended.
"""

import hashlib
import itertools
import json
import os
import time
from collections.abc import Callable, Iterable
from typing import Any

import grammar_corpus
import pytest

from guided_contract.choices import BOUND
from guided_contract.errors import ErrorCode, GuidedError
from guided_contract.wire import Backend
from guided_grammar.backend import Compiled as CompiledGrammar
from guided_grammar.backend import Threads
from guided_grammar.matching import Matcher, SpentError
from guided_grammar.registry import Backends
from guided_sidecar.grammar.compile import library_texts, proof, proof_walk, vocabulary
from guided_sidecar.grammar.compile.compiler import Compiler
from guided_sidecar.grammar.compile.vocabulary import Vocabulary
from guided_sidecar.grammar.worker_messages import Compiled, Done, Job
from support import grammars
from support.engine import pod_config

SPARSE = int(os.environ.get("EVERY", "20"))  # 1: all of the benchmark's schemas
NO_VALUE = {"grammar_unsupported", "grammar_invalid", "grammar_dead_end"}
PERSON = {"type": "object", "properties": {"name": {"type": "string", "minLength": 3, "maxLength": 9}}}


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> Vocabulary:
    return vocabulary.load(pod_config(tmp_path_factory.mktemp("pod")))


@pytest.fixture
def backends(words: Vocabulary) -> dict[Backend, Any]:
    return dict(Backends(words, Threads(compile=2)))


@pytest.fixture
def compiler(words: Vocabulary, backends: dict[Backend, Any]) -> Compiler:
    return Compiler(backends, words)


def run(
    compiler: Compiler, spec: Any, tell: Callable[[Compiled], Any] = lambda _message: None, **fields: Any
) -> Done:
    text = spec if isinstance(spec, str) else json.dumps(spec)
    key = hashlib.sha256(text.encode()).hexdigest()
    more = {"kind": "json", "backends": ["xgrammar", "guidance"], **fields}
    return compiler.run(Job(key=key, spec=text, timeout_s=60, memory_bytes=1 << 40, **more), tell)


class SlowBackend:
    """A library of whose masks some take 30 ms of CPU time each: those from the first on, before the last."""

    def __init__(self, backend: Any, first: int, last: float = float("inf")) -> None:
        self._backend = backend
        self._slow = first, last
        self.stop_tokens = backend.stop_tokens
        self.is_worn = False

    def compile(self, *arguments: Any, **options: Any) -> CompiledGrammar:
        compiled = self._backend.compile(*arguments, **options)
        made, (first, last) = compiled.matcher, self._slow

        def matcher() -> Matcher:
            native = made()
            fill, filled = native.fill, itertools.count()

            def burn(mask: Any, row: int) -> None:
                is_slow = first <= next(filled) < last
                start = time.thread_time()
                while is_slow and time.thread_time() < start + 0.03:
                    pass
                fill(mask, row)

            native.fill = burn
            return native

        compiled.matcher = matcher
        return compiled


@pytest.mark.parametrize("whitespace", [BOUND, 0], ids=["flexible", "compact"])
def test_a_walk_comes_to_the_end_of_a_text(compiler: Compiler, whitespace: int) -> None:
    """Of nearly every schema that is served; only then is anything judged."""
    texts, refused = [], []
    entries = grammar_corpus.corpus()[::SPARSE]
    for entry in entries:
        try:
            run(compiler, entry.text, kind=entry.kind, whitespace=whitespace)
        except GuidedError as refusal:
            assert refusal.code in NO_VALUE  # noqa: PT017 - said with its path, and not wrong
            refused.append(refusal.path)
        else:
            texts.append(compiler.proofs[-1].texts)
    assert len(refused) <= 0.1 * len(entries), refused
    # A walk through strings that only a long text ends is cut by its CPU time.
    assert sum(map(bool, texts)) >= 0.98 * len(texts)


@pytest.mark.parametrize("asked", [{}, {"backends": ["xgrammar"]}], ids=["Auto", "xgrammar"])
@pytest.mark.parametrize(("kind", "spec"), grammars.AMBIGUOUS.values(), ids=grammars.AMBIGUOUS)
def test_an_ambiguous_grammar_is_refused_or_cheap(
    compiler: Compiler, backends: dict[Backend, Any], kind: Any, spec: str, asked: Any
) -> None:
    """Upstream's scheduler stands still for minutes on such a request; each of our ranks would."""
    try:
        done = run(compiler, spec, kind=kind, **asked)
    except GuidedError as refusal:
        assert refusal.code in {"grammar_slow", "grammar_dead_end", "grammar_unsupported"}  # noqa: PT017 - as good
        return
    tokens = backends[done.backend].tokens()
    texts = (b'"',) * (kind == "json") + (b"b",) * 300 * ("bb" in spec) + (b"a",) * 512
    # Each with a lexer of its own: a text may spend it.
    loaded = (backends[done.backend].load(done.spec) for _ in range(3))
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
    monkeypatch: pytest.MonkeyPatch, compiler: Compiler
) -> None:
    monkeypatch.setattr(proof_walk, "_REPEATS_BUDGET_S", 0)  # as if the first repeat had used it up
    kind, spec = grammars.AMBIGUOUS["ebnf"]

    with pytest.raises(GuidedError, match=ErrorCode.GRAMMAR_SLOW):
        run(compiler, spec, kind=kind, backends=["xgrammar"])


def test_an_ambiguous_grammar_is_refused_though_its_first_repeats_are_interrupted(
    monkeypatch: pytest.MonkeyPatch, compiler: Compiler, backends: dict[Backend, Any]
) -> None:
    xgrammar = backends["xgrammar"]
    load = xgrammar.compile

    def compile_interrupted(*arguments: Any, **options: Any) -> CompiledGrammar:
        compiled = load(*arguments, **options)
        made = compiled.matcher

        def matcher() -> Matcher:
            native = made()
            accept, calls = native.accept, itertools.count()

            def interrupted(tokens: Any) -> bool:
                until_s = time.thread_time() + 0.008 * (next(calls) == 5)
                while time.thread_time() < until_s:
                    pass
                return accept(tokens)

            native.accept = interrupted
            return native

        compiled.matcher = matcher
        return compiled

    monkeypatch.setattr(xgrammar, "compile", compile_interrupted)
    kind, spec = grammars.AMBIGUOUS["sum"]
    with pytest.raises(GuidedError, match=ErrorCode.GRAMMAR_SLOW):
        run(compiler, spec, kind=kind, backends=["xgrammar"])


@pytest.mark.parametrize("fills", [0, 2])
def test_a_slow_mask_sends_a_grammar_to_the_other_backend(
    words: Vocabulary, backends: dict[Backend, Any], fills: int
) -> None:
    slow = {**backends, "guidance": SlowBackend(backends["guidance"], fills)}
    compiler = Compiler(slow, words)
    told: list[Compiled] = []

    done = run(compiler, {"type": "object", "properties": {"a": {"type": "boolean"}}}, told.append)

    assert done.backend == "xgrammar"
    assert [one.error_code for one in compiler.proofs] == ["grammar_slow", ""]
    assert [one.done.backend for one in told] == ["guidance", "xgrammar"]
    assert (told[1].done.spec, told[1].done.positions) == (done.spec, done.positions)


def test_what_is_compiled_is_told_before_it_is_proven(
    monkeypatch: pytest.MonkeyPatch, compiler: Compiler
) -> None:
    order: list[str] = []
    prove = compiler._prover.prove
    monkeypatch.setattr(compiler._prover, "prove", lambda *given: order.append("proof") or prove(*given))

    done = run(compiler, PERSON, lambda told: order.append(told.done.backend), backends=["xgrammar"])

    assert order == [done.backend, "proof"]
    only: dict[str, Any] = {"backends": ["xgrammar"], "is_proven": False}
    assert run(compiler, PERSON, lambda told: order.append(told.done.backend), **only).proof_ns == 0
    assert len(order) == 2, "where nothing is proven, the answer itself is what ranks load"


def test_one_slow_fill_is_the_machines(words: Vocabulary, backends: dict[Backend, Any]) -> None:
    """The second fill of the same mask is what counts: what a library makes once, it makes on ranks once."""
    slow = {**backends, "guidance": SlowBackend(backends["guidance"], 0, 1)}
    assert run(Compiler(slow, words), {"type": "boolean"}).backend == "guidance"


def test_what_ranks_hold_of_a_short_text_counts(compiler: Compiler) -> None:
    """An array of 16,000 places is 60 bytes of schema and 12 MB in each rank."""
    done = run(compiler, {"type": "array", "items": {"type": "null"}, "maxItems": 16_000}, is_proven=False)
    assert done.size_bytes > 1_000_000


def test_a_text_that_the_schema_forbids_is_found(monkeypatch: pytest.MonkeyPatch, compiler: Compiler) -> None:
    """As a library would show that ignores what no rule knows of."""
    monkeypatch.setattr(library_texts, "_meant", lambda _form, _job, _backend: {"type": "boolean"})

    with pytest.raises(GuidedError) as refusal:
        run(compiler, {"enum": ["a"]})
    assert (refusal.value.code, refusal.value.path) == ("grammar_unsupported", "$.enum")

    assert run(compiler, {"enum": ["a"]}, is_proven=False).backend == "guidance"
    assert compiler.proofs == []
    monkeypatch.undo()
    fraction = {"type": "number", "multipleOf": 7, "minimum": 0}
    assert run(compiler, fraction).backend == "guidance"


def test_a_grammar_without_a_finite_text_is_refused(compiler: Compiler) -> None:
    spec = 'root ::= "a" [0-9] b\nb ::= b "c"'
    with pytest.raises(GuidedError) as refusal:
        run(compiler, spec, kind="grammar", backends=["xgrammar"])

    assert (refusal.value.code, refusal.value.path) == ("grammar_dead_end", None)
    assert run(compiler, spec, kind="grammar", backends=["xgrammar"], is_proven=False).backend == "xgrammar"


@pytest.mark.parametrize("backend", ["xgrammar", "guidance"])
def test_walks_come_to_an_end_within_counted_bounds(
    monkeypatch: pytest.MonkeyPatch, compiler: Compiler, backend: Any
) -> None:
    texts: list[str] = []
    judged = proof._invalid
    monkeypatch.setattr(
        proof, "_invalid", lambda judge, text, name: texts.append(text) or judged(judge, text, name)
    )

    for number in range(5):
        schema = {**PERSON, "required": ["name"], "description": str(number)}
        assert run(compiler, schema, backends=[backend]).positions

    assert len(texts) > 5
    assert all(3 <= len(json.loads(text)["name"]) <= 9 for text in texts)
