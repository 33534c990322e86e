"""Tools and calls as a client wrote them: what vLLM would put into a grammar as it is, drop, or ignore.

Values of wrong types are refused by vLLM's own request classes; compat/refusals.py knows the engine's parser.
"""

import json
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from guided_contract import names
from guided_contract.errors import ErrorCode
from guided_engine.admission.request_body import Keys, value_of
from guided_engine.admission.request_fault import Fault
from guided_engine.admission.request_routes import ROUTES
from guided_engine.admission.request_words import asked


class _Tool(NamedTuple):
    """A tool that is a function, and where what of it is written."""

    path: str
    function: dict[str, Any]


class _Form(NamedTuple):
    """How a route writes tools and a call.

    Attributes
    ----------
    holder
        The key of a tool that holds its function; "": the tool is it.
    schema
        The key of the arguments' schema.
    types
        Of tools that are functions, if not all are; the others are vLLM's own affair.
    forcing
        What of `tool_choice` forces some call.
    """

    holder: str
    schema: str
    types: tuple[str | None, ...] | None
    forcing: tuple[str, ...]


_FORMS: Final = {
    "/v1/chat/completions": _Form("function", "parameters", None, ("required",)),
    "/v1/responses": _Form("", "parameters", ("function",), ("required",)),
    "/v1/messages": _Form("", "input_schema", (None, "custom"), ("any", "tool")),
}
_TRUE: Final = (True, "true", "True", "1")  # of what pydantic takes for it
# What of a function clients write for themselves, as objects.
_THEIR_OWN: Final = ("cache_control", "metadata", "annotations", "returns", "return", "output")
# What stands beside a function's holder though it belongs inside.
_MISPLACED: Final = ("strict", "parameters", "input_schema")


def fault(route: str, keys: Keys) -> Fault | None:
    """Return what is wrong with the tools of a request, or with the call it forces; None: nothing is."""
    form = _FORMS.get(route)
    if form is None or not keys.keys() & {"tools", "tool_choice"}:
        return None
    found = next(_faults(form, keys), None)
    return None if found is None else found._replace(kind="structural_tag")


def place(route: str, keys: Keys) -> str | None:
    """Return where the client wrote all that its grammar comes from; None: nowhere, or in several places."""
    options = _value(keys, "vllm_xargs")
    if isinstance(options, dict) and names.GRAMMAR_ARG in options:
        return None
    known = ROUTES.get(route)
    places = [] if known is None else [_text_at(path, keys) for path in asked(known, keys)]
    if route in _FORMS and _is_forced(_FORMS[route], _value(keys, "tool_choice")):
        return "tools"
    if route in _FORMS and bytes(keys.get("tools", b"null")) not in (b"null", b"[]"):
        places.append("tools")
    return places[0] if len(places) == 1 else None


def _faults(form: _Form, keys: Keys) -> Iterator[Fault]:
    tools, choice = _value(keys, "tools"), _value(keys, "tool_choice")
    known: list[_Tool] = []
    for number, tool in enumerate(tools if isinstance(tools, list) else ()):
        path = f"tools[{number}]"
        if not isinstance(tool, dict) or (form.types is not None and tool.get("type") not in form.types):
            continue
        for key in _MISPLACED if form.holder else ():
            if tool.get(key):
                yield Fault(f"{path}.{key}", f"it has no effect here; write it inside {form.holder}")
        function = tool.get(form.holder) if form.holder else tool
        if not isinstance(function, dict):
            yield _invalid(f"{path}.{form.holder}", "it is no object, but holds a tool's name and parameters")
        else:
            known.append(_Tool(f"{path}.{form.holder}" if form.holder else path, function))
    for one in known:
        yield from _of_function(form, one)
    forced = _is_forced(form, choice)
    yield from _of_grammars(form, known, is_forced=forced)
    if forced and _value(keys, "structured_outputs") is not None:
        message = "only one constraint is possible, not a forced call (tool_choice) and structured_outputs"
        yield Fault("structured_outputs", message)


def _of_function(form: _Form, tool: _Tool) -> Iterator[Fault]:
    """Yield what is wrong with a function's name, and its schema where it has another key."""
    name, at = tool.function.get("name"), f"{tool.path}.name"
    if not isinstance(name, str) or not name or json.dumps(name, ensure_ascii=False) != f'"{name}"':
        yield _invalid(at, "a tool's name is a string, not empty, without quotes, backslashes and controls")
    for key, value in tool.function.items() if tool.function.get(form.schema) is None else ():
        if isinstance(value, dict) and value and key not in _THEIR_OWN:
            yield Fault(f"{tool.path}.{key}", f"no such key; write the arguments' schema as {form.schema}")


def _of_grammars(form: _Form, tools: list[_Tool], *, is_forced: bool) -> Iterator[Fault]:
    """Yield what is wrong with tools that become a grammar together."""
    enforced = [tool for tool in tools if is_forced or tool.function.get("strict") in _TRUE]
    taken: set[Any] = set()
    for tool in enforced and tools:
        name = str(tool.function.get("name"))
        if name in taken:
            yield _invalid(f"{tool.path}.name", "another tool of the request has this name")
        taken.add(name)
    for tool in enforced:
        schema = tool.function.get(form.schema)
        named = (schema.get("type") if isinstance(schema, dict) else None) or "object"
        if named != "object" and not (isinstance(named, list) and "object" in named):
            message = f"the arguments of a call are an object, but the schema has the type {named!r:.80}"
            yield _invalid(f"{tool.path}.{form.schema}.type", message)


def _is_forced(form: _Form, choice: Any) -> bool:
    if isinstance(choice, str):
        return choice in form.forcing
    if not isinstance(choice, dict):
        return False
    if form.schema == "input_schema":
        return choice.get("type") in form.forcing
    return choice.get("mode") != "auto"


def _text_at(path: str, keys: Keys) -> str:
    """Return the path of a constraint's text, below where it is asked for."""
    first, _, second = path.partition(".")
    value = _value(keys, first)
    value = value.get(second) if second and isinstance(value, dict) else value
    if path.endswith("structured_outputs"):
        given = [key for key, one in value.items() if one is not None] if isinstance(value, dict) else []
        return f"{path}.{given[0]}" if len(given) == 1 else path
    if isinstance(value, dict) and value.get("type", "json_schema") == "json_schema":
        return f"{path}.json_schema.schema" if "json_schema" in value else f"{path}.schema"
    return path


def _value(keys: Keys, name: str) -> Any:
    return value_of(keys[name]) if name in keys else None


def _invalid(path: str, message: str) -> Fault:
    return Fault(path, message, code=ErrorCode.REQUEST_INVALID)
