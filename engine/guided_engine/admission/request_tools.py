"""Tools and calls as a client wrote them: what vLLM would put into a grammar as it is, drop, or ignore.

Only what every format of calls has in common is judged here; compat/refusals.py knows the engine's own.
"""

import json
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from guided_contract import names
from guided_contract.errors import ErrorCode
from guided_engine.admission.foreign_words import folded
from guided_engine.admission.request_body import Keys, value_of
from guided_engine.admission.request_fault import Fault
from guided_engine.admission.request_routes import ROUTES
from guided_engine.admission.request_words import asked


class _Tool(NamedTuple):
    """A tool that is a function, and where what of it is written."""

    path: str
    function: dict[str, Any]
    schema: str

    @property
    def parameters(self) -> Any:
        return self.function.get(self.schema)


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
# What others call the arguments' schema; clients write more beside it, such as what a function returns.
_SCHEMAS: Final = (
    *("parameters", "inputschema", "parametersjsonschema", "jsonschema", "schema"),
    *("args", "arguments", "input"),
)
_THEIR_OWN: Final = ("cache_control", "metadata", "annotations", "returns", "return", "output")
_TRUE: Final = (True, "true", "True", "1")  # of what pydantic takes for it
# What stands beside a function's holder though it belongs inside.
_MISPLACED: Final = ("strict", "parameters", "input_schema")


def fault(route: str, keys: Keys) -> Fault | None:
    """Return what is wrong with the tools of a request, or with the call it forces; None: nothing is."""
    form = _FORMS.get(route)
    if form is None or not keys.keys() & {"tools", "tool_choice"}:
        return None
    found = next(_faults(route, form, keys), None)
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


def _faults(route: str, form: _Form, keys: Keys) -> Iterator[Fault]:
    tools, choice = _value(keys, "tools"), _value(keys, "tool_choice")
    if tools is not None and not isinstance(tools, list):
        yield _invalid("tools", f"it is no list; {ROUTES[route].write('tools')}")
        return
    known: list[_Tool] = []
    for number, tool in enumerate(tools or []):
        path = f"tools[{number}]"
        if not isinstance(tool, dict):
            yield _invalid(path, f"it is no object; {ROUTES[route].write('tools')}")
        elif form.types is None or tool.get("type") in form.types:
            yield from _of_tool(route, form, path, tool)
            inner = tool[form.holder] if form.holder else tool
            known.append(_Tool(f"{path}.{form.holder}" if form.holder else path, inner, form.schema))
    for one in known:
        yield from _of_function(one)
    forced = _is_forced(form, choice)
    yield from _of_choice(route, form, choice, known if len(known) == len(tools or []) else None)
    yield from _of_grammars(known, is_forced=forced)
    constraint = _value(keys, "structured_outputs")
    if forced and constraint is not None:
        message = "only one constraint is possible, not a forced call (tool_choice) and structured_outputs"
        yield Fault("structured_outputs", message)


def _of_tool(route: str, form: _Form, path: str, tool: dict[str, Any]) -> Iterator[Fault]:
    """Yield what is wrong with the outside of a tool."""
    write = ROUTES[route].write("tools")
    if form.holder and not isinstance(tool.get(form.holder), dict):
        what = "missing" if tool.get(form.holder) is None else "no object"
        yield _invalid(f"{path}.{form.holder}", f"it is {what}; {write}")
        return
    for key in _MISPLACED if form.holder else ():
        if tool.get(key):
            yield Fault(f"{path}.{key}", f"it has no effect here; write it inside {form.holder}")
    inner = tool[form.holder] if form.holder else tool
    at = f"{path}.{form.holder}" if form.holder else path
    for key, value in inner.items():
        if isinstance(value, dict) and value and key != form.schema and _is_schema(key, form, inner):
            yield Fault(f"{at}.{key}", f"no such key; write the arguments' schema as {form.schema}")


def _is_schema(key: str, form: _Form, function: dict[str, Any]) -> bool:
    """Return whether a key of a function holds what should stand as the arguments' schema."""
    if function.get(form.schema) is None and key not in _THEIR_OWN:
        return True
    return folded(key) in _SCHEMAS


def _of_function(tool: _Tool) -> Iterator[Fault]:
    """Yield what is wrong with a function's name, and with the type of its schema."""
    name, at = tool.function.get("name"), f"{tool.path}.name"
    if not isinstance(name, str) or not name:
        yield _invalid(at, "a tool needs a name, which is a string")
    elif json.dumps(name, ensure_ascii=False) != f'"{name}"':
        yield _invalid(at, "a tool's name is written as it is: no quotes, backslashes and control characters")
    if tool.parameters is not None and not isinstance(tool.parameters, dict):
        yield _invalid(f"{tool.path}.{tool.schema}", "it is no object, but a JSON Schema is")


def _of_choice(route: str, form: _Form, choice: Any, tools: list[_Tool] | None) -> Iterator[Fault]:
    """Yield what is wrong with a named call; `tools` None: not all of them are known here."""
    if choice is not None and not isinstance(choice, str | dict):
        yield _invalid("tool_choice", f"it is no object and no string; {ROUTES[route].write('tool_choice')}")
    if not isinstance(choice, dict) or choice.get("type", "function") not in ("function", "tool"):
        return
    holder = choice.get(form.holder) if form.holder else choice
    at = f"tool_choice.{form.holder}" if form.holder else "tool_choice"
    if not isinstance(holder, dict):
        yield _invalid(at, f"it is no object; {ROUTES[route].write('tool_choice')}")
        return
    name = holder.get("name")
    if not isinstance(name, str) or not name:
        yield _invalid(f"{at}.name", f"it names no tool; {ROUTES[route].write('tool_choice')}")
    elif tools is not None and name not in [tool.function.get("name") for tool in tools]:
        yield _invalid(f"{at}.name", "no tool of the request has this name")


def _of_grammars(tools: list[_Tool], *, is_forced: bool) -> Iterator[Fault]:
    """Yield what is wrong with tools that become a grammar together."""
    enforced = [tool for tool in tools if is_forced or tool.function.get("strict") in _TRUE]
    taken: set[str] = set()
    for tool in enforced and tools:
        name = tool.function["name"]
        if name in taken:
            yield _invalid(f"{tool.path}.name", "another tool of the request has this name")
        taken.add(name)
    for tool in enforced:
        named = (tool.parameters or {}).get("type") or "object"
        if named != "object" and not (isinstance(named, list) and "object" in named):
            message = f"the arguments of a call are an object, but the schema has the type {named!r:.80}"
            yield _invalid(f"{tool.path}.{tool.schema}.type", message)


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
