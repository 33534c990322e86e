"""Where the client wrote what an error is about: `tools[0].function.parameters.properties.a.type`.

The grammar service knows a grammar's text alone, in which vLLM may have put a tool's schema anywhere. So the
path of a fault is followed from the outside in, until it meets something that the client wrote himself.
"""

import itertools
import re
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from typing import Any, Final, NamedTuple

import msgspec

from guided_contract.errors import GuidedError
from guided_engine.admission.exchange import HttpExchange
from guided_engine.admission.request_body import Keys, value_of
from guided_grammar.json_schema import subschemas

_HOLDERS: Final = (
    "tools",
    "response_format",
    "structured_outputs",
    "text",
    "output_config",
    "sampling_params",
)
_CONSTRAINTS: Final = (
    *("response_format.json_schema.schema", "text.format.schema", "output_config.format.schema"),
    *(
        f"{holder}structured_outputs.{kind}"
        for holder in ("", "sampling_params.")
        for kind in ("json", "structural_tag", "regex", "choice", "grammar")
    ),
    "response_format",
)
# More is not looked into, so that no error holds up the event loop: its path stays that in the grammar.
_MOST_BYTES: Final = 1 << 20
_MOST_SCHEMAS: Final = 500
_STEP: Final = r"\.(?:\w|\$)+|\[\d+\]|\['(?:[^'\\]|\\.)*'\]"
_PATH: Final = re.compile(rf"^\$(?:{_STEP})*(?=: |$)", re.MULTILINE)
_MOVED: Final = ("$defs",)  # vLLM may put them elsewhere
_AT_ROOT: Final = ("$defs", "type")  # and a type to the root of a tool's parameters


class _Written(NamedTuple):
    """A schema as the client wrote it, and what of it vLLM may have changed."""

    place: str
    value: Any
    changed: tuple[str, ...] = ()

    def is_like(self, other: Any) -> bool:
        """Return whether it has become `other`."""
        if self.value == other:
            return True
        if not (isinstance(self.value, dict) and isinstance(other, dict)):
            return False
        if abs(len(self.value) - len(other)) > len(self.changed):
            return False  # soon: it may be asked of thousands
        mine, theirs = (
            {k: v for k, v in one.items() if k not in self.changed} for one in (self.value, other)
        )
        return mine == theirs


def written(keys: Keys) -> Mapping[str, bytes]:
    """Return the parts of a body that a grammar may come from, so that the rest of it can go."""
    parts = {name: bytes(keys[name]) for name in _HOLDERS if name in keys}
    return parts if sum(map(len, parts.values())) <= _MOST_BYTES else {}


def translated(error: GuidedError, exchange: HttpExchange) -> GuidedError:
    """Return the error with paths in the request's body instead of those in its grammar, where known."""
    message, path = error.message, error.path
    if path is not None and path.startswith("$") and exchange.written:
        places = _Places(exchange)
        message, path = _PATH.sub(lambda found: places.of(found[0]), message), places.of(path)
    is_about_grammar = error.code.startswith("grammar_") and error.entry.http_status == HTTPStatus.BAD_REQUEST
    if exchange.place is not None and path in (None, "$") and is_about_grammar:
        if exchange.place == "tools":
            message = message.replace("structural_tag has", "the grammar generated from tools has", 1)
        message = _PATH.sub(lambda found: f"{exchange.place}{found[0][1:]}", message)
        path = exchange.place
    return GuidedError(error.code, message, path=path, retry_after_s=error.retry_after_s)


def unenforced(exchange: HttpExchange) -> list[str]:
    """Return what is not enforced of a request's grammars, of its tools by the paths in its body."""
    if not exchange.unenforced or exchange.kind != "structural_tag" or "tools" not in exchange.written:
        return exchange.unenforced
    return list(dict.fromkeys(map(_Places(exchange).of, exchange.unenforced)))


class _Places:
    """Where the client wrote what stands at paths of the grammar that a request has become."""

    def __init__(self, exchange: HttpExchange) -> None:
        is_json = exchange.kind not in ("regex", "grammar")
        self._spec: Any = _parsed(exchange.spec) if is_json else exchange.spec
        self._known = list(itertools.islice(_schemas(exchange.written), _MOST_SCHEMAS))
        self._found: dict[str, str | None] = {}  # by path; faults have most of their way in common

    def of(self, path: str) -> str:
        """Return a path in the body; as it is, where nothing on its way is the client's own."""
        value: Any = self._spec
        end = 1
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


def _key(step: str) -> str | int:
    if step.startswith("."):
        return step[1:]
    inner = step[1:-1]
    return re.sub(r"\\(.)", r"\1", inner[1:-1]) if inner.startswith("'") else int(inner)


def _schemas(parts: Mapping[str, bytes]) -> Iterator[_Written]:
    """Yield what of a body may be found again in a grammar."""
    body = {name: value_of(msgspec.Raw(text)) for name, text in parts.items()}
    for path in _CONSTRAINTS:
        for one in _found(body, path):
            is_json = path.endswith((".json", ".structural_tag")) and isinstance(one.value, str)
            yield one._replace(value=_parsed(one.value)) if is_json else one
    tools = body.get("tools")
    of_tools = [
        one._replace(place=f"tools[{number}].{path}", changed=_AT_ROOT)
        for number, tool in enumerate(tools if isinstance(tools, list) else ())
        for path in ("function.parameters", "parameters", "input_schema")
        for one in _found(tool, path)
    ]
    yield from of_tools
    for one in of_tools:  # some formats of calls have a schema for each argument
        for keyword in ("$defs", "properties"):
            for part in _found(one.value, keyword):
                for name, value in part.value.items() if isinstance(part.value, dict) else ():
                    yield _Written(subschemas.step(f"{one.place}.{keyword}", name), value, _MOVED)


def _found(value: Any, path: str) -> Iterator[_Written]:
    inner = value
    for key in path.split("."):
        inner = inner.get(key) if isinstance(inner, dict) else None
    if inner is not None:
        yield _Written(path, inner)


def _parsed(text: str) -> Any:
    return value_of(text.encode(errors="replace"))
