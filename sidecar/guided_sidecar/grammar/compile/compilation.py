"""One job from text to proven grammar: checks, the backends in order, proof, artefact. Runs in a worker."""

import contextlib
import functools
import itertools
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from guided_contract.errors import ErrorCode, GuidedError
from guided_contract.wire import Backend, Kind
from guided_grammar.backend import Backend as GrammarBackend
from guided_grammar.backend import BackendError
from guided_grammar.backend import Compiled as CompiledGrammar
from guided_grammar.registry import library
from guided_grammar.texts import language
from guided_sidecar.grammar import artifacts
from guided_sidecar.grammar.compile import (
    blame,
    heard,
    library_texts,
    reading,
    routing,
    sharing,
    slow_patterns,
)
from guided_sidecar.grammar.compile.allowance import WHOLE, Allowance
from guided_sidecar.grammar.compile.instance_check import Judge
from guided_sidecar.grammar.compile.proof import Prover
from guided_sidecar.grammar.compile.reading import Grammar
from guided_sidecar.grammar.compile.vocabulary import Vocabulary
from guided_sidecar.grammar.schema import limits
from guided_sidecar.grammar.worker_errors import ran_out_of_memory
from guided_sidecar.grammar.worker_messages import Compiled, Done, Job, Proof, Unenforced

_LIMITS: Final = (ErrorCode.GRAMMAR_SLOW, ErrorCode.GRAMMAR_UNSUPPORTED)
_WARM: Final = "warm"
_SCHEMA: Final = '{"type": "object", "properties": {"a": {"enum": ["b", "c"]}, "d": {"type": "integer"}}}'
_TAG: Final = f'{{"structures": [{{"begin": "<a", "schema": {_SCHEMA}, "end": ">"}}], "triggers": ["<a"]}}'
_TYPICAL: Final[tuple[tuple[Kind, str], ...]] = (("json", _SCHEMA), ("structural_tag", _TAG))


class Compiler:
    """Compiles jobs one after the other.

    Parameters
    ----------
    backends
        The libraries by name; one that does not take the tokenizer raises BackendError.
    words
        The tokenizer.
    folder
        Where artefacts go.

    Attributes
    ----------
    proofs
        Those of the last job, also of one that was refused.
    """

    def __init__(self, backends: Mapping[Backend, GrammarBackend], words: Vocabulary, folder: Path) -> None:
        self._backends = backends
        self._tokenizer = words.fingerprints
        ends = [backend.stop_tokens for backend in self._usable()]
        self._prover = Prover(words.tokens, frozenset().union(*ends))
        self._folder = folder
        self.proofs: list[Proof] = []
        # Of the job that is being done: what its grammar does without, and whom to tell of it.
        self._unenforced: list[Unenforced] = []
        self._tell: Callable[[Compiled], None] = lambda _message: None

    def warm(self) -> None:
        """Do once all that a job does, so that forked workers inherit what is made at its first use."""
        for backend, (kind, spec) in itertools.product(self._backends, _TYPICAL):
            job = Job(
                key=_WARM,
                kind=kind,
                spec=spec,
                backends=[backend],
                timeout_s=0,
                memory_bytes=0,
            )
            with contextlib.suppress(GuidedError):  # it is said to the first who asks
                self.run(job)
        artifacts.remove(self._folder, _WARM)
        for usable in self._usable():
            usable.is_worn = False  # ranks have as much

    @property
    def is_worn(self) -> bool:
        """Whether the next job is another process's to do: see guided_grammar.backend.Backend."""
        return any(backend.is_worn for backend in self._usable())

    def run(self, job: Job, tell: Callable[[Compiled], None] = lambda _message: None) -> Done:
        """Compile and prove one grammar.

        Parameters
        ----------
        tell
            Called with what ranks may load meanwhile, before it is proven.

        Raises
        ------
        GuidedError
            The grammar is refused; grammar_compile_memory also where a library said so in its own words.
        """
        self.proofs, self._unenforced, self._tell = [], [], tell
        start = time.perf_counter_ns()
        if job.tokenizer not in ({}, self._tokenizer):  # its key is for the one that a template before us had
            message = "the tokenizer has changed on the Hugging Face hub since the pod started"
            raise GuidedError(ErrorCode.GRAMMAR_SERVICE_UNAVAILABLE, message)
        job = msgspec.structs.replace(job, spec=limits.canonical(job.kind, job.spec, job.limits))
        return self._allowing(job, start) if job.allows else self._enforcing(job, start)

    def _allowing(self, job: Job, start: int) -> Done:
        """Compile what is enforced of a grammar, else all of it as upstream does."""
        allowance = Allowance(job.kind, job.spec)
        spec: str | None = job.spec
        while spec is not None:
            self._unenforced = [*allowance.taken]
            try:
                return self._enforcing(msgspec.structs.replace(job, spec=spec), start)
            except GuidedError as error:
                if not allowance.covers(error):
                    raise
                spec = allowance.without(error)
        self._unenforced = [WHOLE]
        return self._first(job, Grammar(job.kind, None, []), job.backends, start)

    def _enforcing(self, job: Job, start: int) -> Done:
        grammar = reading.read(job)
        try:
            return self._first(job, grammar, routing.order(job, grammar), start)
        except GuidedError as error:
            raise reading.told(grammar, error) from error

    def _first(self, job: Job, grammar: Grammar, order: Iterable[Backend], start: int) -> Done:
        """Return what the first of several backends makes of a grammar that takes it."""
        refusals: list[GuidedError] = []
        for backend in order:
            try:
                meant, positions = library_texts.of(job, grammar, backend)
                compiled = heard.compiled(self._backends[backend], job.kind, meant)
                loads = sharing.loads(job, compiled, positions, self._folder)
                took_ns = time.perf_counter_ns() - start
                done = msgspec.structs.replace(loads, unenforced=self._unenforced, compile_ns=took_ns)
                if not job.is_proven:
                    return done
                self._tell(Compiled(done=done))
                return self._proven(job, grammar, compiled, done)
            except BackendError as refusal:
                if ran_out_of_memory(str(refusal)):
                    raise GuidedError(ErrorCode.GRAMMAR_COMPILE_MEMORY) from refusal
                error = self._explained(job, grammar, backend, refusal)
                refusals.insert(0 if _knows(backend, job) else len(refusals), error)
            except GuidedError as error:
                if error.entry.retryable:  # says nothing about the grammar
                    raise
                refusals.append(error)
        # Of a tag as a whole: it says nothing of the schemas in it.
        if job.kind == "structural_tag" and refusals[0].path == "$.format":
            refusals = [*routing.refused(job.backends, grammar), *refusals]
        raise _clearest(refusals)

    def _usable(self) -> Iterator[GrammarBackend]:
        for name in self._backends:
            with contextlib.suppress(BackendError):  # it does not take the tokenizer
                yield self._backends[name]

    def _explained(self, job: Job, grammar: Grammar, backend: Backend, refusal: BackendError) -> GuidedError:
        """Turn a library's refusal into our error."""

        def refuses(part: Any, is_closed: bool) -> bool:  # noqa: FBT001 - a table's function
            text = library_texts.of_schema(part, job, backend)[0] if is_closed else json.dumps(part)
            return self._is_refused("json", text, backend)

        def is_read() -> bool:
            others = (one for one in self._backends if one != backend)
            return not all(self._is_refused(job.kind, job.spec, one) for one in others)

        return blame.explained(grammar, backend, str(refusal), refuses, is_read)

    def _is_refused(self, kind: Kind, text: str, backend: Backend) -> bool:
        try:
            heard.compiled(self._backends[backend], kind, text)
        except BackendError:
            return True
        return False

    def _proven(self, job: Job, grammar: Grammar, compiled: CompiledGrammar, done: Done) -> Done:
        """Prove what was compiled; where that refuses it, its artefact goes."""
        began_ns = time.perf_counter_ns()
        try:
            self._prove(job, grammar, compiled, done)
        except GuidedError:
            artifacts.remove(self._folder, job.key)
            raise
        return msgspec.structs.replace(done, proof_ns=time.perf_counter_ns() - began_ns)

    def _prove(self, job: Job, grammar: Grammar, compiled: CompiledGrammar, done: Done) -> None:
        began_ns = time.time_ns()
        # Of the text as it came: what was closed, relaxed or written otherwise is not what was asked for.
        judge = Judge(job.spec) if job.kind == "json" and grammar.value is not None else None
        fault, texts = self._prover.prove(compiled, done.positions, judge)
        if fault is None or (fault.path is None and fault.code in _LIMITS):
            alone = functools.partial(heard.compiled, self._backends[done.backend], "json")
            fault = slow_patterns.fault(grammar, self._prover, alone) or fault
        code = fault.code.value if fault is not None else ""
        self.proofs.append(Proof(compiled.backend, began_ns, time.time_ns(), code, texts))
        if fault is not None:
            raise blame.proven(grammar, fault)


def _knows(backend: Backend, job: Job) -> bool:
    """Return whether a grammar is in a library's own language: it knows whether one is broken."""
    return job.kind == "grammar" and library(backend).own_language == language(job.spec)


def _clearest(refusals: list[GuidedError]) -> GuidedError:
    """Choose what the developer reads: an error with a keyword's path before one without, else the first."""
    located = (error for error in refusals if error.path not in (None, "$"))
    return next(located, refusals[0])
