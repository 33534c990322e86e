"""Where the client wrote what an error is about: `tools[0].function.parameters.properties.a.type`.

The grammar service knows a grammar's text alone. A single constraint's text is the client's own; a tool's
schema vLLM may have put anywhere, so the path of a fault is followed from the outside in, until it meets
something that the client wrote himself.
"""

import itertools
import re
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from typing import Any, Final, NamedTuple

from guided_contract.errors import GuidedError
from guided_engine.admission import request_tools, request_words
from guided_engine.admission.exchange import HttpExchange
from guided_engine.admission.request_body import Body, at, value_of
from guided_engine.admission.request_routes import ROUTES, Route
from guided_grammar.json_schema import subschemas

_HOLDERS: Final = (
    *("tools", "tool_choice", "response_format", "structured_outputs", "text", "output_config"),
    "sampling_params",
)
# More is not looked into, so that no error holds up the event loop: its path stays that in the grammar.
_MOST_BYTES: Final = 1 << 20
_MOST_SCHEMAS: Final = 500
_STEP: Final = r"\.(?:\w|\$)+|\[\d+\]|\['(?:[^'\\]|\\.)*'\]"
_PATH: Final = re.compile(rf"^\$(?:{_STEP})*(?=: |$)", re.MULTILINE)
_NONE: Final = Route((), "")
_MOVED: Final = ("$defs",)  # vLLM may put them elsewhere
_AT_ROOT: Final = ("$defs", "type")  # and a type to the root of a tool's parameters


class _Written(NamedTuple):
    """What the client wrote, and what of it vLLM may have changed."""

    place: str
    value: Any
    changed: tuple[str, ...] = _MOVED

    def is_like(self, other: Any) -> bool:
        """Return whether it has become `other`."""
        if self.value == other or not (isinstance(self.value, dict) and isinstance(other, dict)):
            return bool(self.value == other)
        if abs(len(self.value) - len(other)) > len(self.changed):
            return False  # soon: it may be asked of thousands
        mine, theirs = (
            {k: v for k, v in one.items() if k not in self.changed} for one in (self.value, other)
        )
        return bool(mine) and mine == theirs


def written(body: Body) -> Mapping[str, bytes]:
    """Return the parts of a body that a grammar may come from, so that the rest of it can go."""
    parts = {name: bytes(body.texts[name]) for name in _HOLDERS if name in body.texts}
    return parts if sum(map(len, parts.values())) <= _MOST_BYTES else {}


def translated(error: GuidedError, exchange: HttpExchange) -> GuidedError:
    """Return the error with paths in the request's body instead of those in its grammar, where known."""
    message, path = error.message, error.path
    is_about_grammar = error.code.startswith("grammar_") and error.code.http_status == HTTPStatus.BAD_REQUEST
    if not exchange.written or not (path.startswith("$") if path else is_about_grammar):
        return error
    places = _Places(exchange)
    if path is not None:
        message, path = _PATH.sub(lambda found: places.of(found[0]), message), places.of(path)
    if places.only is not None and path in (None, "$") and is_about_grammar:
        if places.only == "tools":
            message = message.replace("structural_tag has", "the grammar generated from tools has", 1)
        message = _PATH.sub(lambda found: f"{places.only}{found[0][1:]}", message)
        path = places.only
    return GuidedError(error.code, message, path=path, retry_after_s=error.retry_after_s)


def unenforced(exchange: HttpExchange) -> list[str]:
    """Return what is not enforced of a request's grammars, of its tools by the paths in its body."""
    if not exchange.unenforced or exchange.kind != "structural_tag" or "tools" not in exchange.written:
        return exchange.unenforced
    return list(dict.fromkeys(map(_Places(exchange).of, exchange.unenforced)))


class _Places:
    """Where the client wrote what stands at paths of the grammar that a request has become.

    `only`: the place of all that its grammar comes from; None: there are several, or none.
    """

    def __init__(self, exchange: HttpExchange) -> None:
        body, route = Body(exchange.written), ROUTES.get(exchange.route, _NONE)
        asked = [_constraint(body, path) for path in request_words.asked(route, body)]
        tools = list(request_tools.functions(route.tools, body)) if route.tools else []
        if tools and request_tools.is_forced(body):
            asked = []
        places = [one.place for one in asked] + (["tools"] if tools else [])
        self.only = places[0] if len(places) == 1 else None
        self._is_plain = self.only is not None and not tools
        self._spec: Any = exchange.spec if exchange.kind in ("regex", "grammar") else _parsed(exchange.spec)
        schema = route.tools.schema if route.tools else ""
        given = ((f"{path}.{schema}", function.get(schema)) for path, function in tools)
        of_tools = [_Written(place, value, _AT_ROOT) for place, value in given if value]
        self._known = list(itertools.islice((*asked, *of_tools, *_parts(of_tools)), _MOST_SCHEMAS))
        self._found: dict[str, str | None] = {}  # by path; faults have most of their way in common

    def of(self, path: str) -> str:
        """Return a path in the body; as it is, where nothing on its way is the client's own."""
        if self._is_plain:
            return f"{self.only}{path[1:]}"
        value, end = self._spec, 1
        try:
            while (place := self._place(path[:end], value)) is None:
                step = re.match(_STEP, path[end:])
                if step is None:
                    return path
                end += step.end()
                value = value[_key(step[0])]
        except (LookupError, TypeError, RecursionError):  # the last: as deep values are compared
            return path
        return place + path[end:]

    def _place(self, path: str, value: Any) -> str | None:
        if path not in self._found:
            self._found[path] = next((one.place for one in self._known if one.is_like(value)), None)
        return self._found[path]


def _constraint(body: Body, path: str) -> _Written:
    """Return a constraint's text, below where it is asked for."""
    value = at(body, path)
    if path.endswith("structured_outputs"):
        given = [key for key, one in value.items() if one is not None] if isinstance(value, dict) else []
        path = f"{path}.{given[0]}" if len(given) == 1 else path
        text, is_json = at(body, path), path.endswith((".json", ".structural_tag"))
        return _Written(path, _parsed(text) if is_json and isinstance(text, str) else text)
    if at(value, "type") in (None, "json_schema"):
        path = f"{path}.json_schema.schema" if path == "response_format" else f"{path}.schema"
    return _Written(path, at(body, path))


def _parts(tools: list[_Written]) -> Iterator[_Written]:
    """Yield the parts of tools' schemas: some formats of calls have a schema for each argument."""
    for one in tools:
        for keyword in ("$defs", "properties"):
            inner = at(one.value, keyword)
            for name, value in inner.items() if isinstance(inner, dict) else ():
                yield _Written(subschemas.step(f"{one.place}.{keyword}", name), value)


def _key(step: str) -> str | int:
    if step.startswith("."):
        return step[1:]
    inner = step[1:-1]
    return re.sub(r"\\(.)", r"\1", inner[1:-1]) if inner.startswith("'") else int(inner)


def _parsed(text: str) -> Any:
    return value_of(text.encode(errors="replace"))
