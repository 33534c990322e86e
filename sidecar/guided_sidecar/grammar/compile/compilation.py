"""One job from text to proven grammar: checks, the backends in order, proof, artefact. Runs in a worker."""

import contextlib
import functools
import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

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
)
from guided_sidecar.grammar.compile.allowance import WHOLE, Allowance
from guided_sidecar.grammar.compile.instance_check import Judge
from guided_sidecar.grammar.compile.proof import Prover
from guided_sidecar.grammar.compile.reading import Grammar
from guided_sidecar.grammar.compile.vocabulary import Vocabulary
from guided_sidecar.grammar.schema import limits
from guided_sidecar.grammar.worker_errors import ran_out_of_memory
from guided_sidecar.grammar.worker_messages import Compiled, Done, Job, Proof, Unenforced

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
        # Of the job that is being done: when it began, and whom to tell of it.
        self._start_ns = 0
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
        self.proofs, self._tell, self._start_ns = [], tell, time.perf_counter_ns()
        if job.tokenizer not in ({}, self._tokenizer):  # its key is for the one that a template before us had
            message = "the tokenizer has changed on the Hugging Face hub since the pod started"
            raise GuidedError(ErrorCode.GRAMMAR_SERVICE_UNAVAILABLE, message)
        job = asked = msgspec.structs.replace(job, spec=limits.canonical(job.kind, job.spec, job.limits))
        if not job.allows:
            return self._enforced(job, [])
        allowance = Allowance(job.kind, job.spec)
        while True:
            try:
                return self._enforced(job, allowance.taken)
            except GuidedError as error:
                if not allowance.covers(error):
                    raise
                if (spec := allowance.without(error)) is None:  # all of it as upstream does
                    return self._first(asked, Grammar(job.kind, None, []), job.backends, [WHOLE])
                job = msgspec.structs.replace(job, spec=spec)

    def _enforced(self, job: Job, unenforced: list[Unenforced]) -> Done:
        """Compile what is left of a text, and say what it does without."""
        grammar = reading.read(job)
        try:
            return self._first(job, grammar, routing.order(job, grammar), unenforced)
        except GuidedError as error:
            raise reading.told(grammar, error) from error

    def _first(
        self, job: Job, grammar: Grammar, order: Iterable[Backend], unenforced: list[Unenforced]
    ) -> Done:
        """Return what the first of several backends makes of a grammar that takes it."""
        refusals: list[GuidedError] = []
        for backend in order:
            try:
                return self._compiled(job, grammar, backend, unenforced)
            except BackendError as refusal:
                if ran_out_of_memory(str(refusal)):
                    raise GuidedError(ErrorCode.GRAMMAR_COMPILE_MEMORY) from refusal
                knows = job.kind == "grammar" and library(backend).own_language == language(job.spec)
                refuses = functools.partial(self._is_refused, backend)
                is_read = functools.partial(self._is_read_by_others, backend, job)
                error = blame.explained(grammar, backend, str(refusal), refuses, is_read)
                refusals.insert(0 if knows else len(refusals), error)
            except GuidedError as error:
                if error.entry.retryable:  # says nothing about the grammar
                    raise
                refusals.append(error)
        # Of a tag as a whole: it says nothing of the schemas in it.
        if job.kind == "structural_tag" and refusals[0].path == "$.format":
            lacking = routing.missing(job.backends, grammar)
            refusals[:0] = [] if lacking is None else [lacking]
        raise _clearest(refusals)

    def _compiled(self, job: Job, grammar: Grammar, backend: Backend, unenforced: list[Unenforced]) -> Done:
        """Compile a grammar with one library, have ranks load it, and prove it."""
        meant, positions = library_texts.of(job, grammar, backend)
        compiled = heard.compiled(self._backends[backend], job.kind, meant)
        loads = sharing.loads(job, compiled, positions, self._folder)
        took_ns = time.perf_counter_ns() - self._start_ns
        done = msgspec.structs.replace(loads, unenforced=[*unenforced], compile_ns=took_ns)
        if not job.is_proven:
            return done
        self._tell(Compiled(done=done))
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
        code = fault.code.value if fault is not None else ""
        self.proofs.append(Proof(compiled.backend, began_ns, time.time_ns(), code, texts))
        if fault is not None:
            raise blame.proven(grammar, fault)

    def _usable(self) -> Iterator[GrammarBackend]:
        for name in self._backends:
            with contextlib.suppress(BackendError):  # it does not take the tokenizer
                yield self._backends[name]

    def _is_read_by_others(self, backend: Backend, job: Job) -> bool:
        others = (one for one in self._backends if one != backend)
        return any(not self._is_refused(one, job.kind, job.spec) for one in others)

    def _is_refused(self, backend: Backend, kind: Kind, text: str) -> bool:
        try:
            heard.compiled(self._backends[backend], kind, text)
        except BackendError:
            return True
        return False


def _clearest(refusals: list[GuidedError]) -> GuidedError:
    """Choose what the developer reads: an error with a keyword's path before one without, else the first."""
    located = (error for error in refusals if error.path not in (None, "$"))
    return next(located, refusals[0])
