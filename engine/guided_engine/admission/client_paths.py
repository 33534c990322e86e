"""Where the client wrote what an error is about: `tools[0].function.parameters.properties.a.type`.

The grammar service knows a grammar's text alone. A single constraint's text is the client's own; of tools and
what stands beside them vLLM makes another, in which their schemas are looked for, from the outside in.
"""

import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

from guided_contract.errors import GuidedError
from guided_engine.admission import request_checks, request_tools
from guided_engine.admission.exchange import HttpExchange
from guided_engine.admission.request_body import at, value_of
from guided_engine.admission.request_routes import HOLDERS, ROUTES, Route

_STEP: Final = re.compile(r"\.((?:\w|\$)+)|\[(\d+)\]|\['((?:[^'\\]|\\.)*)'\]")
_PATH: Final = re.compile(rf"^\$(?:{_STEP.pattern})*(?=: |$)", re.MULTILINE)
_NONE: Final = Route((), "")


def written(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parts of a body that a grammar may come from, so that the rest of it can go."""
    return {name: body[name] for name in HOLDERS if name in body}


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
        body, route = exchange.written, ROUTES.get(exchange.route, _NONE)
        tools = list(request_tools.functions(route.tools, body)) if route.tools else []
        paths = [] if tools and request_tools.is_forced(body) else request_checks.asked(route, body)
        asked = [_place(body, path) for path in paths]
        places = [*asked, *(["tools"] if tools else [])]
        self.only = places[0] if len(places) == 1 else None
        self._is_plain = self.only is not None and not tools
        self._spec = value_of(exchange.spec)
        key = route.tools.schema if route.tools else ""
        given = [(place, at(body, place)) for place in asked]
        given += [(f"{path}.{key}", function.get(key)) for path, function in tools]
        self._known = [(kept, place) for place, value in given if (kept := _compared(value))]

    def of(self, path: str) -> str:
        """Return a path in the body; as it is, where nothing on its way is the client's own."""
        if self._is_plain:
            return f"{self.only}{path[1:]}"
        value, end = self._spec, 1
        try:
            while (place := self._place_of(value)) is None:
                step = _STEP.match(path, end)
                if step is None:
                    return path
                end, (name, index, quoted) = step.end(), step.groups()
                value = value[int(index) if index else name or re.sub(r"\\(.)", r"\1", quoted)]
        except (LookupError, TypeError, RecursionError):
            return path
        return f"{place}{path[end:]}"

    def _place_of(self, value: Any) -> str | None:
        """Return where a client wrote a schema; of equal ones the first place counts."""
        compared = _compared(value)
        return next((place for kept, place in self._known if kept == compared), None)


def _compared(value: Any) -> dict[str, Any]:
    """Return a schema without what vLLM may put elsewhere in it, or to its root; empty of no more."""
    return {k: v for k, v in value.items() if k not in ("$defs", "type")} if isinstance(value, dict) else {}


def _place(body: Mapping[str, Any], path: str) -> str:
    """Return where a constraint's text is, below where it is asked for."""
    value = at(body, path)
    if path.endswith("structured_outputs"):
        given = [key for key, one in value.items() if one is not None] if isinstance(value, dict) else []
        return f"{path}.{given[0]}" if len(given) == 1 else path
    if at(value, "type") not in (None, "json_schema"):
        return path
    return f"{path}.json_schema.schema" if path == "response_format" else f"{path}.schema"
