"""Tools and calls as a client wrote them: what vLLM would put into a grammar as it is, drop, or ignore.

Values of wrong types are refused by vLLM's own request classes; compat/refusals.py knows the engine's parser.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from guided_contract.errors import GuidedError
from guided_engine.admission.request_body import LONGEST_KEY, fault, invalid, like
from guided_engine.admission.request_routes import Route, Tools

_LIKENESS: Final = 0.9  # of a misspelt `strict`; `restrict` is less
# What stands beside a function's holder though it belongs inside.
_MISPLACED: Final = ("strict", "parameters", "input_schema")


def faults(route: Route, body: Mapping[str, Any]) -> Iterator[GuidedError]:
    """Yield what is wrong with the tools of a request, and with the call it forces."""
    form = route.tools
    if form is None:
        return
    for number, tool in enumerate(_listed(body) if form.holder else ()):
        yield from _of_holder(form, f"tools[{number}]", tool)
    forced = is_forced(body)
    is_enforced = forced or is_strict(body)
    names: set[Any] = set()
    for path, function in functions(form, body):
        for key in filter(function.get, function):
            if key != "strict" and like(key[:LONGEST_KEY], ("strict",), _LIKENESS) == "strict":
                yield fault(f"{path}.{key}", "it is ignored here; write strict instead")
        name = function.get("name")
        if not isinstance(name, str) or not name or json.dumps(name, ensure_ascii=False) != f'"{name}"':
            message = "a tool's name must be a non-empty string without quotes, backslashes and controls"
            yield invalid(f"{path}.name", message)
        if is_enforced:  # vLLM's parsers would write a strict tool's free namesake beside it
            if name in names:
                yield invalid(f"{path}.name", "another tool of the request has the same name")
            names.add(name)
    if forced and body.get("structured_outputs") is not None:
        message = "only one constraint is possible, not a forced call (tool_choice) and structured_outputs"
        yield fault("structured_outputs", message)


def is_forced(body: Mapping[str, Any]) -> bool:
    """Return whether a request asks for a call, of one tool or of any."""
    choice = body.get("tool_choice")
    if isinstance(choice, dict):
        return choice.get("type") not in ("auto", "none") and choice.get("mode") != "auto"
    return bool(choice == "required")


def is_strict(body: Mapping[str, Any]) -> bool:
    """Return whether a tool of the request is strict, wherever it says so."""
    tools = [tool for tool in _listed(body) if isinstance(tool, dict)]
    inner = [tool["function"] for tool in tools if isinstance(tool.get("function"), dict)]
    # pydantic takes more than true for it.
    return any(one.get("strict") not in (None, False) for one in [*tools, *inner])


def functions(form: Tools, body: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the functions among a request's tools, each with its path."""
    for number, tool in enumerate(_listed(body)):
        if isinstance(tool, dict) and form.type in ("", tool.get("type")):
            function = tool.get(form.holder) if form.holder else tool
            if isinstance(function, dict):
                yield f"tools[{number}]{'.' if form.holder else ''}{form.holder}", function


def _of_holder(form: Tools, path: str, tool: Any) -> Iterator[GuidedError]:
    """Yield what stands beside a tool's function instead of inside, and a function that is none."""
    for key in filter(tool.get, _MISPLACED) if isinstance(tool, dict) else ():
        yield fault(f"{path}.{key}", f"it is ignored here; write it inside {form.holder}")
    if isinstance(tool, dict) and not isinstance(tool.get(form.holder), dict):
        yield invalid(f"{path}.{form.holder}", "it must be an object with the tool's name and parameters")


def _listed(body: Mapping[str, Any]) -> list[Any]:
    tools = body.get("tools")
    return tools if isinstance(tools, list) else []
