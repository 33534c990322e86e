"""What a worker is to compile for a request, its key (equal keys, equal masks), and what ranks are to load.

Runs on the service's event loop: a client's text is measured and hashed here, and read by a worker alone.
"""

import hashlib

import msgspec

from guided_contract import backends, choices
from guided_contract.config import PodConfig
from guided_contract.errors import ErrorCode, GuidedError
from guided_contract.wire import Kind, Load, Prepare
from guided_sidecar.grammar import trust
from guided_sidecar.grammar.worker_messages import Done, Job, Ready


def taken(kind: Kind, spec: str, most_bytes: int) -> str:
    """Return the text that a worker is to read.

    GuidedError: grammar_too_large, or grammar_invalid for half a character, which no message can hold.
    """
    if kind == "json_object":
        return ""  # whatever is sent along
    try:
        size = len(spec.encode())
    except UnicodeEncodeError as error:
        raise GuidedError(ErrorCode.GRAMMAR_INVALID, "the text contains a lone surrogate") from error
    if size > most_bytes:
        message = f"{size} bytes exceed the limit of {most_bytes} bytes"
        raise GuidedError(ErrorCode.GRAMMAR_TOO_LARGE, message)
    return spec


def job_of(request: Prepare, pod: PodConfig, facts: Ready, memory_bytes: int = 0) -> Job:
    """Return what a worker is to do: as the request chooses, else as the pod is configured.

    A backend that the request names is alone. The key is the hash of all that a compiled grammar depends on,
    as 64 hex digits. GuidedError: as `taken`.
    """
    guided = pod.guided_decoding
    keywords = request.unsupported_keywords or guided.unsupported_keywords
    named = request.backend or backends.NAMES.get(guided.backend)
    routes = keywords != "Reject" and request.backend is None
    every = sorted(backends.NAMES.values(), key=lambda backend: backend != named)
    job = Job(
        key="",
        kind=request.kind,
        spec=taken(request.kind, request.spec, guided.compile.max_schema_bytes),
        backends=every if routes or named is None else [named],
        named=named,
        routes=routes,
        allows=keywords == "Allow",
        whitespace=choices.MOST[request.whitespace or guided.whitespace],
        limits=guided.compile,
        unmeasured=trust.unmeasured(facts.versions),
        is_proven=guided.proof == "Always",
        timeout_s=guided.compile.timeout_s,
        memory_bytes=memory_bytes,
        tokenizer=facts.tokenizer,
    )
    hashed = msgspec.structs.replace(job, memory_bytes=0), facts.vocab_size, facts.versions
    key = hashlib.sha256(msgspec.msgpack.encode(hashed, order="deterministic")).hexdigest()
    return msgspec.structs.replace(job, key=key)


def load_of(key: str, done: Done) -> Load:
    """Return what a rank is to load of a grammar."""
    told = {name: getattr(done, name) for name in Load.__struct_fields__}
    return Load(**{**told, "key": key})
