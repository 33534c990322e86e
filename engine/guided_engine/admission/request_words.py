"""Constraints that are asked for in other servers' words, or in misspelt ones: found, and told what to write.

vLLM ignores keys that it does not know. Here a key that asks for a constraint is one that vLLM reads on this
route, or a refusal; in an object that is nothing but a constraint, so is every key that is not known.
"""

import difflib
import functools
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple, cast, get_args

import msgspec

from guided_contract.errors import ErrorCode, GuidedError
from guided_contract.wire import Kind
from guided_engine.admission.request_body import Keys, keys_of, value_of


class Fault(NamedTuple):
    """What is wrong with the words of a request.

    Attributes
    ----------
    kind
        Of the constraint that was meant, where it is known.
    """

    path: str
    message: str
    kind: Kind | None

    @property
    def error(self) -> GuidedError:
        """Return the refusal."""
        path = self.path if len(self.path) <= _MOST_CHARACTERS else f"{self.path[:_MOST_CHARACTERS]}…"
        return GuidedError(ErrorCode.REQUEST_UNKNOWN_CONSTRAINT, f"{path}: {self.message}", path=path)


class _Route(NamedTuple):
    """Where a route takes constraints.

    Attributes
    ----------
    read
        Paths of the objects that are nothing but a constraint.
    schema
        How to ask for a JSON schema.
    others
        How to ask for another kind, which stands for %s.
    has_tools
        Whether a call can be forced.
    """

    read: tuple[str, ...]
    schema: str
    others: str = 'structured_outputs: {"%s": ...}'
    has_tools: bool = True

    def write(self, meaning: str) -> str:
        """Return what to write on this route for what was meant."""
        if meaning in _ADVICE:
            return _ADVICE[meaning]
        if meaning == _ANY:
            return f"write {self.schema} or {self.others % 'KIND'} instead"
        return f"write {self.schema if meaning == 'json' else self.others % meaning} instead"


_ANY: Final = ""  # a constraint of some kind
_KINDS: Final = frozenset(get_args(Kind))
_OPENAI: Final = _Route(
    ("response_format", "structured_outputs"),
    'response_format: {"type": "json_schema", "json_schema": {"name": NAME, "schema": SCHEMA}}',
)
_ROUTES: Final[Mapping[str, _Route]] = {
    **dict.fromkeys(("/v1/chat/completions", "/v1/chat/completions/batch", "/invocations"), _OPENAI),
    "/v1/completions": _OPENAI._replace(has_tools=False),
    "/v1/responses": _Route(
        ("text.format", "structured_outputs"),
        'text: {"format": {"type": "json_schema", "name": NAME, "schema": SCHEMA}}',
    ),
    "/v1/messages": _Route(
        ("output_config.format",),
        'output_config: {"format": {"type": "json_schema", "schema": SCHEMA}}',
        'structured_outputs: {"%s": ...} on /v1/chat/completions',
    ),
    "/inference/v1/generate": _Route(
        ("sampling_params.structured_outputs",),
        'sampling_params: {"structured_outputs": {"json": SCHEMA}}',
        'sampling_params: {"structured_outputs": {"%s": ...}}',
        has_tools=False,
    ),
}
_ADVICE: Final = {
    "backend": 'write vllm_xargs: {"guided_backend": "xgrammar"} or "guidance" instead',
    "whitespace": 'write vllm_xargs: {"guided_whitespace": "flexible"}, "compact" or "unbounded" instead',
    "tools": 'write tools: [{"type": "function", "function": ...}] instead',
    "call": "only /v1/chat/completions, /v1/responses and /v1/messages have tools",
    "tool_choice": 'write tool_choice: {"type": "function", "function": {"name": NAME}} instead',
}
# Only what stands below their `format` is a constraint.
_WITH_FORMAT: Final = ("text", "output_config")
# What keys ask for elsewhere: in former versions of vLLM, SGLang, Ollama, llama.cpp, and on other routes.
_WORDS: Final[Mapping[str, str]] = {
    **{kind: kind for kind in _KINDS},
    **{f"guided_{kind}": kind for kind in _KINDS},
    **dict.fromkeys(("json_schema", "schema", "format", "output_format", *_WITH_FORMAT), "json"),
    **dict.fromkeys(("response_format", "structured_output", "structured_outputs"), _ANY),
    **dict.fromkeys(("guided_decoding_backend", "guided_backend", "_backend", "backend"), "backend"),
    "ebnf": "grammar",
    **dict.fromkeys(("guided_whitespace_pattern", "guided_whitespace"), "whitespace"),
    "functions": "tools",
    "function_call": "tool_choice",
    "tool_choice": "call",
}
# Objects that vLLM does not read: what a client library would have unfolded, NVIDIA's, SGLang's.
_UNREAD: Final = ("extra_body", "nvext", "sampling_params")
_STRUCTURED: Final = (
    *sorted(_KINDS),
    *("whitespace_pattern", "disable_any_whitespace", "disable_additional_properties"),
)
# Keys of formats by their type: those of OpenAI's chat, of its Responses, and of Anthropic.
_FORMATS: Final[Mapping[str, Mapping[str, tuple[str, ...]]]] = {
    "response_format": {
        "text": ("type",),
        "json_object": ("type",),
        "json_schema": ("type", "json_schema"),
        "structural_tag": ("type", "format", "structures", "triggers"),
    },
    "text.format": {
        "text": ("type",),
        "json_object": ("type",),
        "json_schema": ("type", "name", "description", "schema", "strict"),
    },
    "output_config.format": {"json_schema": ("type", "schema")},
}
_NAMED_SCHEMA: Final = ("name", "description", "schema", "strict")
# More and longer ones nobody writes, and each takes up to 0.1 ms to be compared.
_MOST_KEYS: Final = 200
_LONGEST: Final = 64
_MOST_CHARACTERS: Final = 200  # of a path, which may hold a client's own words
_CLOSE: Final = 0.8  # difflib's ratio from which a key is taken for a misspelt one
_NOTHING: Final = frozenset([b"null", b"false", b'""'])
_DEFAULTS: Final = frozenset([b'"none"', b'"auto"'])  # of what is no text of a constraint
_MISSING: Final = msgspec.Raw(b"null")


def fault(route: str, keys: Keys) -> Fault | None:
    """Return what a request asks for in words that vLLM ignores on its route; None: there is nothing."""
    known = _ROUTES.get(route)
    return None if known is None else next(_faults(known, keys), None)


def _faults(route: _Route, keys: Keys) -> Iterator[Fault]:
    outer = {path.partition(".")[0]: path.partition(".")[2] for path in route.read}
    yield from _foreign(route, keys, (*outer, *(("tool_choice",) if route.has_tools else ())), "")
    for name in sorted({*_UNREAD, *outer} & keys.keys()):
        if name in _UNREAD or outer[name]:
            inner = keys_of(keys[name]) or {}
            yield from _foreign(route, inner, (outer.get(name, ""),), f"{name}.")
    for path in route.read:
        found = _at(keys, path)
        if not _asks(found):
            continue
        if path.endswith("structured_outputs"):
            yield from _of_structured_outputs(path, found)
        else:
            yield from _of_format(route, path, found)


def _foreign(route: _Route, keys: Keys, read: tuple[str, ...], path: str) -> Iterator[Fault]:
    """Yield the keys of an object that ask for a constraint, and are none of those that are read."""
    for key, value in keys.items():
        may_be_near = len(keys) <= _MOST_KEYS and len(key) <= _LONGEST
        meaning = _near(key, read) if may_be_near else _exact(key)
        if (
            key in read
            or meaning is None
            or not _asks(value)
            or (meaning in _ADVICE and bytes(value) in _DEFAULTS)
        ):
            continue
        if key in _WITH_FORMAT and not _asks((keys_of(value) or {}).get("format", _MISSING)):
            continue
        kind = cast("Kind", meaning) if meaning in _KINDS else None
        yield Fault(path + key, f"it has no effect here; {route.write(meaning)}", kind)


def _exact(key: str) -> str | None:
    """Return what a key asks for; None: no constraint."""
    return _WORDS.get(key, _ANY if key.startswith("guided_") else None)


@functools.lru_cache(1024)  # clients send the same few keys again and again
def _near(key: str, read: tuple[str, ...]) -> str | None:
    """Return what a key asks for, or one that it is near to; None: no constraint."""
    meaning = _exact(key)
    words = [*read, "response_format", "structured_outputs"]
    return _ANY if meaning is None and difflib.get_close_matches(key, words, 1, _CLOSE) else meaning


def _of_structured_outputs(path: str, value: msgspec.Raw) -> Iterator[Fault]:
    keys = keys_of(value)
    if keys is None:
        return  # vLLM says of which type it must be
    yield from _unknown(path, keys, _STRUCTURED, None)
    asked = [key for key in keys if key in _KINDS and bytes(keys[key]) != b"null"]
    if not asked:
        yield Fault(path, f"it holds no constraint; give one of {', '.join(sorted(_KINDS))}", None)
    if len(asked) > 1:
        yield Fault(path, f"only one constraint is possible, not {' and '.join(asked)}", None)


def _of_format(route: _Route, path: str, value: msgspec.Raw) -> Iterator[Fault]:
    keys, formats = keys_of(value), _FORMATS[path]
    if keys is None:
        yield Fault(path, f"it is no object; {route.write(_ANY)}", None)
        return
    named = value_of(keys["type"]) if "type" in keys else "json_schema"
    if not isinstance(named, str) or named not in formats:
        message = f"it is not one of {', '.join(formats)}; {route.write(_WORDS.get(str(named), _ANY))}"
        yield Fault(f"{path}.type", message, None)
        return
    kind = cast("Kind", {"json_schema": "json", "text": None}.get(named, named))
    advice = route.write("json") if named != "structural_tag" else ""
    yield from _unknown(path, keys, formats[named], kind, advice)
    if named != "json_schema":
        return
    if "json_schema" in formats[named]:
        path, keys = f"{path}.json_schema", keys_of(keys.get("json_schema", _MISSING)) or {}
        yield from _unknown(path, keys, _NAMED_SCHEMA, kind, advice)
    if not _asks(keys.get("schema", _MISSING)):
        yield Fault(f"{path}.schema", f"it is missing; {advice}", kind)


def _unknown(
    path: str, keys: Keys, known: Iterable[str], kind: Kind | None, advice: str = ""
) -> Iterator[Fault]:
    """Yield the keys of a constraint that are none, with one that may have been meant."""
    for key, value in keys.items():
        if key in known or not _asks(value):
            continue
        close = difflib.get_close_matches(key, known, 1)
        what = f"no such key; did you mean {close[0]}?" if close else "no such key;"
        write = _ADVICE.get(_WORDS.get(key, _ANY)) or advice or f"the keys are {', '.join(known)}"
        yield Fault(f"{path}.{key}", f"{what} {write}", kind)


def _at(keys: Keys, path: str) -> msgspec.Raw:
    """Return what stands at a path of one or two keys."""
    first, _, second = path.partition(".")
    found = keys.get(first, _MISSING)
    return (keys_of(found) or {}).get(second, _MISSING) if second else found


def _asks(value: msgspec.Raw) -> bool:
    """Return whether a value asks for anything: null, false, "" and the type `text` do not."""
    text = bytes(value)
    if text in _NOTHING:
        return False
    keys = keys_of(value) if len(text) < 100 and text.startswith(b"{") else None
    return keys is None or len(keys) != 1 or bytes(keys.get("type", _MISSING)) != b'"text"'
