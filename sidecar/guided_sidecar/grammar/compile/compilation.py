"""One job from text to proven grammar: checks, the backends in order, proof, artefact. Runs in a worker."""

import contextlib
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from guided_contract.counting import Position
from guided_contract.errors import ErrorCode, GuidedError
from guided_contract.wire import Backend
from guided_grammar.backend import Backend as GrammarBackend
from guided_grammar.backend import BackendError, Compiled
from guided_grammar.json_schema import subschemas
from guided_grammar.json_schema.keywords import LENGTHS
from guided_grammar.registry import library
from guided_sidecar.grammar import artifacts
from guided_sidecar.grammar.compile import length_bounds, routing
from guided_sidecar.grammar.compile.instance_check import Judge
from guided_sidecar.grammar.compile.proof import Prover
from guided_sidecar.grammar.compile.routing import Grammar
from guided_sidecar.grammar.compile.vocabulary import Vocabulary
from guided_sidecar.grammar.schema import additional_properties, limits
from guided_sidecar.grammar.worker_errors import ran_out_of_memory
from guided_sidecar.grammar.worker_messages import Done, Job, Proof

# Larger ones take ranks many seconds to load, and few of them would fill the folder that the pod shares.
_MOST_ARTIFACT_BYTES: Final = 64 << 20
_WARM: Final = "warm"
_TYPICAL: Final = '{"type": "object", "properties": {"a": {"enum": ["b", "c"]}, "d": {"type": "integer"}}}'


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

    def warm(self) -> None:
        """Do once all that a job does, so that forked workers inherit what is made at its first use."""
        for backend in self._backends:
            job = Job(
                key=_WARM,
                kind="json",
                spec=_TYPICAL,
                backends=[backend],
                any_whitespace=False,
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

    def run(self, job: Job) -> Done:
        """Compile and prove one grammar.

        Raises
        ------
        GuidedError
            The grammar is refused; grammar_compile_memory also where a library said so in its own words.
        """
        self.proofs = []
        start = time.perf_counter_ns()
        if job.tokenizer not in ({}, self._tokenizer):  # its key is for the one that a template before us had
            message = "the tokenizer has changed on the Hugging Face hub since the pod started"
            raise GuidedError(ErrorCode.GRAMMAR_SERVICE_UNAVAILABLE, message)
        job = msgspec.structs.replace(job, spec=limits.canonical(job.kind, job.spec, job.limits))
        grammar = routing.read(job)
        refusals: list[GuidedError] = []
        for backend in routing.order(job, grammar):
            try:
                return self._one(job, grammar, backend, start)
            except BackendError as refusal:
                if ran_out_of_memory(str(refusal)):
                    raise GuidedError(ErrorCode.GRAMMAR_COMPILE_MEMORY) from refusal
                refusals.append(_explained(grammar, backend, str(refusal)))
            except GuidedError as error:
                if error.entry.retryable:  # says nothing about the grammar
                    raise
                refusals.append(error)
        raise _clearest(refusals)

    def _usable(self) -> Iterator[GrammarBackend]:
        for name in self._backends:
            with contextlib.suppress(BackendError):  # it does not take the tokenizer
                yield self._backends[name]

    def _one(self, job: Job, grammar: Grammar, backend: Backend, start: int) -> Done:
        meant, positions = _relaxed(job, grammar, backend)
        compiled = self._backends[backend].compile(job.kind, meant, any_whitespace=job.any_whitespace)
        source = compiled.source()
        content = (source or compiled.artifact()).encode()
        compiled_at = time.perf_counter_ns()
        if job.is_proven:
            self._prove(job, grammar, compiled, positions)
        done = Done(
            backend=backend,
            positions=positions,
            compile_ns=compiled_at - start,
            proof_ns=time.perf_counter_ns() - compiled_at,
            size_bytes=max(len(content), compiled.memory_bytes),
        )
        _check_size(len(content))
        if source is not None:
            return msgspec.structs.replace(done, spec=source)
        sha256 = self._write(job.key, content)
        return msgspec.structs.replace(done, artifact=job.key, sha256=sha256)

    def _prove(self, job: Job, grammar: Grammar, compiled: Compiled, positions: Sequence[Position]) -> None:
        began_ns = time.time_ns()
        # Of the text as it came: what was closed, relaxed or written otherwise is not what was asked for.
        judge = Judge(job.spec) if job.kind == "json" else None
        fault, texts = self._prover.prove(compiled, positions, judge, job.key)
        code = fault.code.value if fault is not None else ""
        self.proofs.append(Proof(compiled.backend, began_ns, time.time_ns(), code, texts))
        if fault is not None:
            path = fault.path or ("$" if grammar.schemas else None)
            raise GuidedError(fault.code, fault.message, path=path)

    def _write(self, key: str, content: bytes) -> str:
        try:
            return artifacts.write(self._folder, key, content)
        except OSError as error:
            message = f"the compiled grammar could not be written: {error.strerror}"
            raise GuidedError(ErrorCode.GRAMMAR_STORAGE_FULL, message) from error


def _relaxed(job: Job, grammar: Grammar, backend: Backend) -> tuple[str, list[Position]]:
    """Return the text to compile, and the bounds that ranks count beside it."""
    if job.kind == "structural_tag":
        tag = subschemas.with_each_of_tag(grammar.value, lambda _, form: _meant(form, job, backend))
        return json.dumps(tag), []
    if job.kind != "json":
        return job.spec, []
    meant = _meant(grammar.value, job, backend)
    text = json.dumps(meant)
    if not any(f'"{keyword}"' in text for keyword in LENGTHS):
        return text, []
    relaxed, positions = length_bounds.split(meant, backend)
    if not library(backend).compiles_lengths and backend != job.named:
        _check_lengths(relaxed, backend)
    return json.dumps(relaxed), positions


def _check_lengths(relaxed: Any, backend: Backend) -> None:
    for place in subschemas.walk(relaxed):
        if place.allows("string") and (found := [one for one in LENGTHS if one in place.schema]):
            message = f"{backend} does not enforce a length that ranks cannot count"
            raise GuidedError(ErrorCode.GRAMMAR_UNSUPPORTED, message, path=place.at(found[0]))


def _meant(form: Any, job: Job, backend: Backend) -> Any:
    """Return what a library is to compile of a schema's normal form."""
    # A library that was asked for by name compiles the schema as vLLM would have it compile it.
    meant = form if backend == job.named else additional_properties.close(form)
    return additional_properties.spell_once(meant) if library(backend).compares_spellings else meant


def _check_size(size_bytes: int) -> None:
    if size_bytes > _MOST_ARTIFACT_BYTES:
        message = (
            f"the compiled grammar has {size_bytes >> 20} MiB; the limit is {_MOST_ARTIFACT_BYTES >> 20}"
        )
        raise GuidedError(ErrorCode.GRAMMAR_TOO_LARGE, message)


def _explained(grammar: Grammar, backend: Backend, message: str) -> GuidedError:
    """Turn a library's refusal into our error, with the keyword's path where the message names one."""
    said = f"{backend}: {message}"
    for keyword in _keywords_in(message):
        for schema in grammar.schemas:
            if inner := subschemas.find(schema.form, keyword):
                at = schema.at(inner)
                return GuidedError(ErrorCode.GRAMMAR_UNSUPPORTED, f"{at}: {said}", path=at)
    unsupported = "support" in message or "Unimplemented" in message
    code = ErrorCode.GRAMMAR_UNSUPPORTED if unsupported else ErrorCode.GRAMMAR_INVALID
    return GuidedError(code, said, path="$" if grammar.kind == "json" else None)


def _keywords_in(message: str) -> list[str]:
    """Return what llguidance lists in `Unimplemented keys: ["not", ...]`."""
    _, found, rest = message.partition("Unimplemented keys: ")
    if not found:
        return []
    try:
        keys, _ = json.JSONDecoder().raw_decode(rest)
    except ValueError:
        return []
    return [key for key in keys if isinstance(key, str)]


def _clearest(refusals: list[GuidedError]) -> GuidedError:
    """Choose what the developer reads: an error with a keyword's path before one without, else the first."""
    located = (error for error in refusals if error.path not in (None, "$"))
    return next(located, refusals[0])
