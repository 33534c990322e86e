"""One job from text to proven grammar: checks, the backends in order, proof, artefact. Runs in a worker."""

import contextlib
import functools
import itertools
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from guided_contract.counting import Position
from guided_contract.errors import ErrorCode, GuidedError
from guided_contract.wire import Backend, Kind
from guided_grammar.backend import Backend as GrammarBackend
from guided_grammar.backend import BackendError
from guided_grammar.backend import Compiled as CompiledGrammar
from guided_grammar.registry import library
from guided_grammar.texts import language
from guided_sidecar.grammar import artifacts, worker_messages
from guided_sidecar.grammar.compile import blame, heard, library_texts, routing
from guided_sidecar.grammar.compile.allowance import WHOLE, Allowance
from guided_sidecar.grammar.compile.instance_check import Judge
from guided_sidecar.grammar.compile.proof import Prover
from guided_sidecar.grammar.compile.proof_faults import Fault
from guided_sidecar.grammar.compile.routing import Grammar
from guided_sidecar.grammar.compile.vocabulary import Vocabulary
from guided_sidecar.grammar.schema import limits, tag_words
from guided_sidecar.grammar.worker_errors import ran_out_of_memory
from guided_sidecar.grammar.worker_messages import Compiled, Done, Job, Meanwhile, Proof, Unenforced

# Larger ones take ranks many seconds to load, and few of them would fill the folder that the pod shares.
_MOST_ARTIFACT_BYTES: Final = 64 << 20
_LIMITS: Final = (ErrorCode.GRAMMAR_SLOW, ErrorCode.GRAMMAR_UNSUPPORTED)
_PATTERNS_BUDGET_S: Final = 0.1  # CPU time, after which no other pattern is walked alone
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
        self._tell: Callable[[Meanwhile], None] = lambda _message: None

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

    def run(self, job: Job, tell: Callable[[Meanwhile], None] = lambda _message: None) -> Done:
        """Compile and prove one grammar.

        Parameters
        ----------
        tell
            Called with what ranks may load meanwhile, before it is proven; with why a library refused the
            grammar, before the next one is asked.

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
        if job.kind == "structural_tag":
            tag_words.check(json.loads(job.spec))
        grammar = routing.read(job)
        try:
            return self._first(job, grammar, routing.order(job, grammar), start)
        except GuidedError as error:
            raise functools.reduce(lambda told, made: made.told(told), grammar.schemas, error) from error

    def _first(self, job: Job, grammar: Grammar, order: Iterable[Backend], start: int) -> Done:
        """Return what the first of several backends makes of a grammar that takes it."""
        refusals: list[GuidedError] = []
        for backend in order:
            if refusals:
                self._tell(worker_messages.fell_back(_clearest(refusals)))
            try:
                meant, positions = library_texts.of(job, grammar, backend)
                compiled, done = self._compiled(job, backend, meant, positions)
                done = msgspec.structs.replace(done, compile_ns=time.perf_counter_ns() - start)
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
        if refusals[0].path == "$.format":  # which says nothing of the schemas in it
            refusals = [*routing.refused(job.backends, grammar), *refusals]
        raise _clearest(refusals)

    def _usable(self) -> Iterator[GrammarBackend]:
        for name in self._backends:
            with contextlib.suppress(BackendError):  # it does not take the tokenizer
                yield self._backends[name]

    def _done(self, job: Job, backend: Backend, positions: list[Position]) -> Done:
        """Return what ranks are to load, but for the grammar."""
        return Done(
            backend=backend,
            positions=positions,
            whitespace=library_texts.whitespace(job),
            is_tagged=job.kind == "structural_tag",
            unenforced=self._unenforced,
        )

    def _compiled(
        self, job: Job, backend: Backend, meant: str, positions: list[Position]
    ) -> tuple[CompiledGrammar, Done]:
        """Compile for one backend; return the grammar, and what ranks are to load of it."""
        compiled = self._heard(job.kind, meant, backend)
        source = compiled.source()
        content = (source or compiled.artifact()).encode()
        done = msgspec.structs.replace(
            self._done(job, backend, positions), size_bytes=max(len(content), compiled.memory_bytes)
        )
        _check_size(len(content))
        if source is not None:
            return compiled, msgspec.structs.replace(done, spec=source)
        sha256 = self._write(job.key, content)
        return compiled, msgspec.structs.replace(done, artifact=job.key, sha256=sha256)

    def _heard(self, kind: Kind, meant: str, backend: Backend) -> CompiledGrammar:
        """Compile; BackendError also where the library says that it ignores something."""
        with heard.listening() as said:
            compiled = self._backends[backend].compile(kind, meant)
        if said:
            raise BackendError(f"it is not supported: {said[0]}")
        return compiled

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
            self._heard(kind, text, backend)
        except BackendError:
            return True
        return False

    def _proven(self, job: Job, grammar: Grammar, compiled: CompiledGrammar, done: Done) -> Done:
        """Prove what was compiled; where that refuses it, its artefact goes."""
        began_ns = time.perf_counter_ns()
        try:
            self._prove(job, grammar, compiled, done.positions)
        except GuidedError:
            artifacts.remove(self._folder, job.key)
            raise
        return msgspec.structs.replace(done, proof_ns=time.perf_counter_ns() - began_ns)

    def _prove(
        self, job: Job, grammar: Grammar, compiled: CompiledGrammar, positions: Sequence[Position]
    ) -> None:
        began_ns = time.time_ns()
        # Of the text as it came: what was closed, relaxed or written otherwise is not what was asked for.
        judge = Judge(job.spec) if job.kind == "json" and grammar.value is not None else None
        fault, texts = self._prover.prove(compiled, positions, judge)
        if fault is None or (fault.path is None and fault.code in _LIMITS):
            fault = self._slow_pattern(grammar, compiled) or fault
        code = fault.code.value if fault is not None else ""
        self.proofs.append(Proof(compiled.backend, began_ns, time.time_ns(), code, texts))
        if fault is not None:
            raise blame.proven(grammar, fault)

    def _slow_pattern(self, grammar: Grammar, compiled: CompiledGrammar) -> Fault | None:
        """Walk each pattern alone that may be slow, and that the walks may not have come to."""
        until_s = time.thread_time() + _PATTERNS_BUDGET_S
        for pattern, path in routing.repeating(grammar).items():
            if time.thread_time() > until_s:
                break
            text = json.dumps({"type": "string", "pattern": pattern})
            with contextlib.suppress(BackendError):  # it has been compiled as a part of the whole
                alone = self._heard("json", text, compiled.backend)
                if (fault := self._prover.slow_fault(alone)) is not None:
                    return fault._replace(message=f"{path}: {fault.message}", path=path)
        return None

    def _write(self, key: str, content: bytes) -> str:
        try:
            return artifacts.write(self._folder, key, content)
        except OSError as error:
            message = f"the compiled grammar could not be written: {error.strerror}"
            raise GuidedError(ErrorCode.GRAMMAR_STORAGE_FULL, message) from error


def _check_size(size_bytes: int) -> None:
    if size_bytes > _MOST_ARTIFACT_BYTES:
        message = (
            f"the compiled grammar has {size_bytes >> 20} MiB; the limit is {_MOST_ARTIFACT_BYTES >> 20}"
        )
        raise GuidedError(ErrorCode.GRAMMAR_TOO_LARGE, message)


def _knows(backend: Backend, job: Job) -> bool:
    """Return whether a grammar is in a library's own language: it knows whether one is broken."""
    return job.kind == "grammar" and library(backend).own_language == language(job.spec)


def _clearest(refusals: list[GuidedError]) -> GuidedError:
    """Choose what the developer reads: an error with a keyword's path before one without, else the first."""
    located = (error for error in refusals if error.path not in (None, "$"))
    return next(located, refusals[0])
