"""Reads a request's constraint, and what it chooses beside, out of vLLM's parameters, in plain Python."""

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple, TypeAlias, get_args

from guided_contract import backends, names
from guided_contract.choices import RequestOption, UnsupportedKeywords, Whitespace
from guided_contract.config import GuidedDecodingConfig
from guided_contract.errors import ErrorCode, GuidedError
from guided_contract.wire import Backend, Kind
from guided_engine.admission.request_body import fault
from guided_engine.admission.request_routes import ARGUMENTS

Arguments: TypeAlias = Mapping[str, Any] | None


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


def named_grammar(own: Any, extra_args: Arguments, place: str = ARGUMENTS) -> Constraint | None:
    """Return the grammar that a request asks for by name at `place`; None: it asks for none.

    Raises
    ------
    GuidedError
        The name is no text, or the request has a constraint of its own too (grammar_invalid).
    """
    name = (extra_args or {}).get(names.GRAMMAR_ARG)
    if name is None:
        return None
    is_name = isinstance(name, str) and name.isprintable()  # half of a surrogate pair is not
    if is_name and own is None:
        return Constraint(name=name)
    message = f"{names.GRAMMAR_ARG} {_ALONE if is_name else 'must be the name of a grammar'}"
    raise GuidedError(ErrorCode.GRAMMAR_INVALID, message, path=f"{place}.{names.GRAMMAR_ARG}")


def constraint_of(structured_outputs: Any, max_bytes: int) -> Constraint:
    """Return the constraint of vLLM's StructuredOutputsParams.

    Raises
    ------
    GuidedError
        No constraint is set, or it cannot be written as text (grammar_invalid), its text is longer than
        `max_bytes` or too deep (grammar_too_large).
    """
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


def options_of(given: Arguments, guided: GuidedDecodingConfig, place: str = ARGUMENTS) -> dict[str, Any]:
    """Return what a request chooses at `place`, by wire.Prepare's fields; None: as the pod is configured.

    Raises
    ------
    GuidedError
        It has a key with our prefix that is none of a client's, or chooses what its model does not let
        requests choose (request_reserved_argument), or what there is not (grammar_unsupported).
    """
    for name in given or ():
        if name.startswith(names.RESERVED_PREFIX) and name not in names.CLIENT_ARGS:
            message = "keys that begin with guided_ are reserved"
            raise fault(f"{place}.{name}", message, ErrorCode.REQUEST_RESERVED_ARGUMENT)
    configured = backends.NAMES.get(guided.backend)
    offered: dict[RequestOption, Iterable[str]] = {
        "Backend": backends.NAMES.values() if configured is None else (configured,),
        "Whitespace": get_args(Whitespace),
        "UnsupportedKeywords": get_args(UnsupportedKeywords),
    }
    chosen: dict[str, Any] = {}
    for option, choices in offered.items():
        name = names.OPTION_ARGS[option]
        value = (given or {}).get(name)
        if value is not None and option not in guided.request_options:
            message = "it is not in this model's guidedDecoding.requestOptions; remove it"
            raise fault(f"{place}.{name}", message, ErrorCode.REQUEST_RESERVED_ARGUMENT)
        by_word = {choice.lower(): choice for choice in choices}
        if value is not None and not (isinstance(value, str) and value in by_word):
            message = f"it must be {' or '.join(by_word)} here"
            raise fault(f"{place}.{name}", message, ErrorCode.GRAMMAR_UNSUPPORTED)
        chosen[name.removeprefix(names.RESERVED_PREFIX)] = None if value is None else by_word[value]
    return chosen


def _json_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, allow_nan=False)


def _object_text(value: Any) -> str:
    if value is not True:
        raise ValueError("json_object must be true if set")
    return ""


_ALONE: Final = "cannot be combined with a schema, tools or another constraint"

# In the order in which vLLM looks at them; it refuses more than one.
_READERS: Final[dict[Kind, Callable[[Any], str]]] = {
    "json": _json_text,
    "json_object": _object_text,
    "regex": str,
    "choice": lambda choices: json.dumps(list(choices)),
    "grammar": str,
    "structural_tag": str,
}
