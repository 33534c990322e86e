"""One job from text to proven grammar: checks, the backends in order, proof, artefact. Runs in a worker."""

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec

from guided_contract.counting import Position
from guided_contract.errors import ErrorCode, GuidedError
from guided_contract.wire import Backend, Kind
from guided_sidecar.grammar import artifacts, closed, counted, features, gaps, proof, schema, subschemas
from guided_sidecar.grammar.backends import BackendError, Compiled
from guided_sidecar.grammar.deaths import ran_out_of_memory
from guided_sidecar.grammar.jobs import Done, Job, Proof

# Larger ones take ranks many seconds to load, and few of them would fill the folder that the pod shares.
_MOST_ARTIFACT_BYTES: Final = 64 << 20


class GrammarBackend(Protocol):
    """Either library's compiler."""

    def compile(self, kind: Kind, spec: str, *, any_whitespace: bool) -> Compiled:
        """Compile one grammar or raise BackendError."""


class Compiler:
    """Compiles jobs one after the other.

    Parameters
    ----------
    backends
        The compilers by name.
    tokens
        Each token's bytes, as many as the logits are wide.
    folder
        Where artefacts go.

    Attributes
    ----------
    proofs
        Those of the last job, also of one that was refused.
    """

    def __init__(
        self, backends: dict[Backend, GrammarBackend], tokens: Sequence[bytes], folder: Path
    ) -> None:
        self._backends = backends
        self._tokens = tokens
        self._folder = folder
        self.proofs: list[Proof] = []

    def run(self, job: Job) -> Done:
        """Compile and prove one grammar.

        Raises
        ------
        GuidedError
            The grammar is refused; grammar_compile_memory also where a library said so in its own words.
        """
        self.proofs = []
        start = time.perf_counter_ns()
        spec = _read(job)
        refusals: list[GuidedError] = []
        for backend in self._order(job, spec):
            try:
                return self._one(job, spec, backend, start)
            except BackendError as refusal:
                if ran_out_of_memory(str(refusal)):
                    raise GuidedError(ErrorCode.GRAMMAR_COMPILE_MEMORY) from refusal
                refusals.append(_explained(job.kind, spec, backend, str(refusal)))
            except GuidedError as error:
                if error.entry.retryable:  # says nothing about the grammar
                    raise
                refusals.append(error)
        raise _clearest(refusals)

    def _order(self, job: Job, spec: Any) -> list[Backend]:
        candidates = features.order(job.kind, spec) if len(job.backends) > 1 else job.backends
        if job.kind != "json":
            return candidates
        found = {backend: gaps.ignores(backend, spec) for backend in candidates}
        able = [backend for backend in candidates if found[backend] is None]
        if not able and (first := found[candidates[0]]) is not None:
            raise GuidedError(ErrorCode.GRAMMAR_UNSUPPORTED, f"{first.path}: {first.reason}", path=first.path)
        return able

    def _one(self, job: Job, spec: Any, backend: Backend, start: int) -> Done:
        source, positions = _relaxed(job, spec, backend)
        compiled = self._backends[backend].compile(job.kind, source, any_whitespace=job.any_whitespace)
        text = compiled.load_text()
        compiled_at = time.perf_counter_ns()
        began_ns = time.time_ns()
        stuck = proof.dead_end(compiled, positions, self._tokens, job.key)
        code = ErrorCode.GRAMMAR_DEAD_END.value if stuck else ""
        self.proofs.append(Proof(backend, began_ns, time.time_ns(), code))
        if stuck:
            path = "$" if isinstance(spec, dict) else None
            raise GuidedError(ErrorCode.GRAMMAR_DEAD_END, f"the grammar has a dead end: {stuck}", path=path)
        proven_at = time.perf_counter_ns()
        done = Done(
            backend=backend,
            positions=positions,
            compile_ns=compiled_at - start,
            proof_ns=proven_at - compiled_at,
        )
        content = text.encode()
        _check_size(len(content))
        if backend == "guidance":
            return msgspec.structs.replace(done, spec=text, size_bytes=len(content))
        sha256 = self._write(job.key, content)
        return msgspec.structs.replace(done, artifact=job.key, sha256=sha256, size_bytes=len(content))

    def _write(self, key: str, content: bytes) -> str:
        try:
            return artifacts.write(self._folder, key, content)
        except OSError as error:
            message = f"the compiled grammar could not be written: {error.strerror}"
            raise GuidedError(ErrorCode.GRAMMAR_STORAGE_FULL, message) from error


def _read(job: Job) -> Any:
    """Return the schema parsed and checked, of another kind the text."""
    if job.kind == "structural_tag":
        _check_tag(job)
    if job.kind != "json":
        return job.spec
    spec = json.loads(job.spec)
    schema.check(spec)
    schema.write_whole_numbers(spec)
    return spec


def _relaxed(job: Job, spec: Any, backend: Backend) -> tuple[str, list[Position]]:
    """Return the text to compile, and the bounds that ranks count beside it."""
    if job.kind != "json":
        return job.spec, []
    # One library that was asked for by name compiles the schema as vLLM would have it compile it.
    meant = closed.close(spec) if len(job.backends) > 1 else spec
    relaxed, positions = counted.split(meant, backend)
    return json.dumps(relaxed), positions


def _check_tag(job: Job) -> None:
    """Refuse a structural tag with a schema that is none, or that nobody here would enforce.

    llguidance takes tags in the old form; what it cannot enforce of them it says itself.
    """
    tag = json.loads(job.spec)
    guidance_may = "guidance" in job.backends and "structures" in tag
    for path, inner in subschemas.in_tag(tag):
        try:
            schema.check(inner)
            found = gaps.xgrammar_ignores(inner)
        except GuidedError as error:
            raise GuidedError(error.code, error.message, path=_below(path, error.path)) from error
        if found is not None and not guidance_may:
            at = _below(path, found.path)
            raise GuidedError(ErrorCode.GRAMMAR_UNSUPPORTED, f"{at}: {found.reason}", path=at)


def _below(path: str, inner: str | None) -> str:
    return path + (inner or "$").removeprefix("$")


def _check_size(size_bytes: int) -> None:
    if size_bytes > _MOST_ARTIFACT_BYTES:
        message = (
            f"compiled, the grammar has {size_bytes >> 20} MiB; the limit is {_MOST_ARTIFACT_BYTES >> 20}"
        )
        raise GuidedError(ErrorCode.GRAMMAR_TOO_LARGE, message)


def _explained(kind: Kind, spec: Any, backend: Backend, message: str) -> GuidedError:
    """Turn a library's refusal into our error, with the keyword's path where the message names one."""
    said = f"{backend}: {message}"
    if kind == "json":
        for keyword in _keywords_in(message):
            if path := features.find(spec, keyword):
                return GuidedError(ErrorCode.GRAMMAR_UNSUPPORTED, f"{path}: {said}", path=path)
    unsupported = "support" in message or "Unimplemented" in message
    code = ErrorCode.GRAMMAR_UNSUPPORTED if unsupported else ErrorCode.GRAMMAR_INVALID
    return GuidedError(code, said, path="$" if kind == "json" else None)


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
