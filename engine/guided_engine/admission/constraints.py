"""Reads a request's constraint, and what it chooses beside, out of vLLM's parameters, in plain Python."""

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple, get_args

from guided_contract import backends, names
from guided_contract.choices import RequestOption, UnsupportedKeywords, Whitespace
from guided_contract.config import GuidedDecodingConfig
from guided_contract.errors import ErrorCode, GuidedError
from guided_contract.wire import Backend, Kind


class Constraint(NamedTuple):
    """A grammar as wire.Prepare asks for it."""

    kind: Kind = "json"
    spec: str = ""
    name: str | None = None
    backend: Backend | None = None
    whitespace: Whitespace | None = None
    unsupported_keywords: UnsupportedKeywords | None = None


def asks_for_grammar(sampling: Any) -> bool:
    """Return whether vLLM's SamplingParams are guided: by a constraint of their own, or by a name."""
    if getattr(sampling, "structured_outputs", None) is not None:
        return True
    return names.GRAMMAR_ARG in (getattr(sampling, "extra_args", None) or {})


def kind_of(structured_outputs: Any) -> Kind | None:
    """Return the kind of a constraint, before anybody has read it; None: there is none."""
    asked = (kind for kind in _READERS if getattr(structured_outputs, kind, None) is not None)
    return next(asked, None)


def named_grammar(structured_outputs: Any, extra_args: Mapping[str, Any] | None) -> Constraint | None:
    """Return the grammar that a request asks for by name; None: it asks for none.

    Raises
    ------
    GuidedError
        The name is no text, or the request has a constraint of its own too (grammar_invalid).
    """
    name = (extra_args or {}).get(names.GRAMMAR_ARG)
    if name is None:
        return None
    if isinstance(name, str) and structured_outputs is None:
        return Constraint(name=name)
    fault = "must be the name of a grammar" if not isinstance(name, str) else _ALONE
    message = f"{names.GRAMMAR_ARG} {fault}"
    raise GuidedError(ErrorCode.GRAMMAR_INVALID, message, path=f"vllm_xargs.{names.GRAMMAR_ARG}")


def constraint_of(structured_outputs: Any, max_bytes: int) -> Constraint:
    """Return the constraint of vLLM's StructuredOutputsParams.

    Raises
    ------
    GuidedError
        No constraint is set, or it cannot be written as text (grammar_invalid), its text is longer than
        `max_bytes` or too deep (grammar_too_large), or an option is set that vLLM takes and ignores
        (grammar_unsupported).
    """
    for option in _IGNORED:
        if getattr(structured_outputs, option, None):
            message = f"{option} cannot be set per request: remove it"
            raise GuidedError(ErrorCode.GRAMMAR_UNSUPPORTED, message, path=f"structured_outputs.{option}")
    kind = kind_of(structured_outputs)
    if kind is None:
        raise GuidedError(ErrorCode.GRAMMAR_INVALID, "no constraint is given")
    try:
        constraint = Constraint(kind, _READERS[kind](getattr(structured_outputs, kind)))
        size = len(constraint.spec.encode())
    except RecursionError as error:
        raise GuidedError(ErrorCode.GRAMMAR_TOO_LARGE, "the schema is nested too deeply", path="$") from error
    except (TypeError, ValueError) as error:  # such as NaN, and half of a surrogate pair
        raise GuidedError(ErrorCode.GRAMMAR_INVALID, f"{kind} cannot be read: {error}", path="$") from error
    if size > max_bytes:
        message = f"{kind} has {size} bytes; at most {max_bytes} are allowed"
        raise GuidedError(ErrorCode.GRAMMAR_TOO_LARGE, message, path="$")
    return constraint


def options_of(extra_args: Mapping[str, Any] | None, guided: GuidedDecodingConfig) -> dict[str, Any]:
    """Return what a request chooses in vllm_xargs, by wire.Prepare's fields; None: as the pod is configured.

    Raises
    ------
    GuidedError
        It has a key with our prefix that is none of a client's, or chooses what its model does not let
        requests choose (request_reserved_argument), or what there is not (grammar_unsupported).
    """
    for name in extra_args or ():
        if name.startswith(names.RESERVED_PREFIX) and name not in names.CLIENT_ARGS:
            message = f"vllm_xargs must not contain {name!r}: keys that begin with guided_ are reserved"
            raise GuidedError(ErrorCode.REQUEST_RESERVED_ARGUMENT, message, path=f"vllm_xargs.{name}")
    configured = backends.NAMES.get(guided.backend)
    offered: dict[RequestOption, Iterable[str]] = {
        "Backend": backends.NAMES.values() if configured is None else (configured,),
        "Whitespace": get_args(Whitespace),
        "UnsupportedKeywords": get_args(UnsupportedKeywords),
    }
    chosen: dict[str, Any] = {}
    for option, choices in offered.items():
        name = names.OPTION_ARGS[option]
        value = (extra_args or {}).get(name)
        if value is not None and option not in guided.request_options:
            message = f"{name} is not in this model's guidedDecoding.requestOptions; remove it"
            raise GuidedError(ErrorCode.REQUEST_RESERVED_ARGUMENT, message, path=f"vllm_xargs.{name}")
        by_word = {choice.lower(): choice for choice in choices}
        if value is not None and not (isinstance(value, str) and value in by_word):
            message = f"{name} must be {' or '.join(by_word)} here"
            raise GuidedError(ErrorCode.GRAMMAR_UNSUPPORTED, message, path=f"vllm_xargs.{name}")
        chosen[name.removeprefix(names.RESERVED_PREFIX)] = None if value is None else by_word[value]
    return chosen


def _json_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, allow_nan=False)


def _object_text(value: Any) -> str:
    if value is not True:
        raise ValueError("json_object must be true if set")
    return ""


_ALONE: Final = "cannot be combined with a schema, tools or another constraint"
# vLLM 0.32 reads these from the engine's configuration alone.
_IGNORED: Final = ("whitespace_pattern", "disable_any_whitespace", "disable_additional_properties")

# In the order in which vLLM looks at them; it refuses more than one.
_READERS: Final[dict[Kind, Callable[[Any], str]]] = {
    "json": _json_text,
    "json_object": _object_text,
    "regex": str,
    "choice": lambda choices: json.dumps(list(choices)),
    "grammar": str,
    "structural_tag": str,
}
