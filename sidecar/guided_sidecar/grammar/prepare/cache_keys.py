"""A grammar's text as it is taken, and its key: equal keys, equal masks.

Runs on the service's event loop: a client's text is measured and hashed here, and read by a worker alone.
"""

import hashlib
from typing import NamedTuple

import msgspec

from guided_contract import backends, choices
from guided_contract.config import PodConfig
from guided_contract.errors import ErrorCode, GuidedError
from guided_contract.wire import Backend, Kind, Prepare
from guided_sidecar.grammar.worker_messages import Ready


class Choice(NamedTuple):
    """How a grammar is to be compiled, by request and pod.

    Attributes
    ----------
    backends
        Those, the preferred one first; under `Auto`, in no order.
    named
        The one that request or pod name; None: `Auto`.
    routes
        Whether another than the first choice may serve what that does not enforce.
    allows
        Whether what none of them enforces is left out.
    whitespace
        Characters of white space between two tokens of JSON, at most; None: any number.
    """

    backends: list[Backend]
    named: Backend | None
    routes: bool
    allows: bool
    whitespace: int | None


def taken(kind: Kind, spec: str, most_bytes: int) -> str:
    """Return the text that a worker is to read.

    Raises
    ------
    GuidedError
        grammar_too_large, or grammar_invalid for half a character, which no message can hold.
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


def choice(request: Prepare, pod: PodConfig) -> Choice:
    """Return what a request chooses, else what the pod is configured for; a backend it names is alone."""
    guided = pod.guided_decoding
    most = choices.MOST[request.whitespace or guided.whitespace]
    keywords = request.unsupported_keywords or guided.unsupported_keywords
    allows, routes = keywords == "Allow", keywords != "Reject"
    if request.backend is not None:
        return Choice([request.backend], request.backend, False, allows, most)
    named = backends.NAMES.get(guided.backend)
    if named is None:
        return Choice(list(backends.NAMES.values()), None, routes, allows, most)
    others = [backend for backend in backends.NAMES.values() if backend != named]
    return Choice([named, *others] if routes else [named], named, routes, allows, most)


def grammar_key(kind: str, spec: str, chosen: Choice, pod: PodConfig, facts: Ready) -> str:
    """Return the hash of all that a compiled grammar depends on, as 64 hex digits."""
    options = [chosen, pod.guided_decoding.proof]
    parts = [kind, spec, options, facts.tokenizer, facts.vocab_size, facts.versions]
    return hashlib.sha256(msgspec.msgpack.encode(parts, order="deterministic")).hexdigest()
