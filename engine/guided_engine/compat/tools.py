"""What a forced tool call holds: an object that fits the tool's parameters, be the tool strict or not.

Upstream leaves the arguments of a tool that is not strict free: any JSON, also `false`, which clients refuse.
Where an answer is to be JSON and a call may be made instead, it has a grammar of both for strict tools alone;
without it no call could ever be made. And where arguments are elements of XML, its parsers read a value by
the type that its property says, and look behind no reference.
"""

import contextlib
import functools
from collections.abc import Callable, Sequence
from typing import Any, Final

from guided_contract.config import PodConfig
from guided_contract.errors import ErrorCode, GuidedError
from guided_engine.compat import minor
from guided_engine.ledger import LedgerEntry
from guided_grammar.json_schema import subschemas

# OpenAI's meaning of a function without parameters, and upstream's own where it has no structural tag.
_NO_PARAMETERS: Final = {"type": "object", "properties": {}}


def _apply(_config: PodConfig) -> None:
    from vllm.parser.abstract_parser import DelegatingParser  # noqa: PLC0415 - see compat/__init__.py
    from vllm.parser.engine import parser_engine  # noqa: PLC0415 - as above
    from vllm.tool_parsers import (  # noqa: PLC0415 - as above
        abstract_tool_parser,
        structural_tag_registry,
        utils,
    )

    resolve = structural_tag_registry.resolve_tool_strictness
    structural_tag_registry.resolve_tool_strictness = _resolving(resolve)
    if minor.here().has_default_arguments:
        utils._params_or_empty_object = _arguments  # noqa: SLF001 - of parsers without structural tags
    else:
        _hold_by_name(utils, abstract_tool_parser)
    parser_engine.find_tool_properties = _finding(parser_engine.find_tool_properties)
    apply = DelegatingParser._apply_structural_tag  # noqa: SLF001 - it has no other name
    DelegatingParser._apply_structural_tag = _applying(apply)  # noqa: SLF001 - as above


def is_forced(choice: Any) -> bool:
    """Return whether a request's `tool_choice` asks for a call, of one tool or of any."""
    return choice not in (None, "none", "auto") and getattr(choice, "mode", "required") != "auto"


def may_answer_instead(request: Any) -> bool:
    """Return whether a request takes a call, or an answer that is JSON as it says."""
    if not request.tools or is_forced(request.tool_choice) or request.tool_choice in (None, "none"):
        return False
    constraint = request.extract_structured_outputs()
    return constraint is not None and (constraint.json is not None or bool(constraint.json_object))


def _applying(apply: Callable[..., Any]) -> Callable[..., Any]:
    from vllm.tool_parsers.tool_strict_level import ToolStrictLevel  # noqa: PLC0415 - see compat/__init__.py

    @functools.wraps(apply)
    def applying(self: Any, request: Any) -> Any:
        level = self.tool_strict_level
        if may_answer_instead(request):
            # None, since vLLM 0.33: nobody set one. A parser's own is FUNCTION at most.
            self.tool_strict_level = max(level or ToolStrictLevel.AUTO, ToolStrictLevel.FUNCTION)
        try:
            return apply(self, request)
        finally:
            self.tool_strict_level = level

    return applying


def _hold_by_name(utils: Any, parsers: Any) -> None:
    """Have vLLM before 0.32 hold a forced call's arguments to an object, one tool's and any tool's."""
    of_each, of_one = utils._get_tool_schema_from_name_and_params, utils.get_json_schema_from_tools  # noqa: SLF001 - it has no other name

    def holding(tool_choice: Any, tools: Any) -> Any:
        schema = of_one(tool_choice, tools)
        return schema if isinstance(tool_choice, str | None) else _arguments(schema)

    utils._get_tool_schema_from_name_and_params = lambda name, params: of_each(name, _arguments(params))  # noqa: SLF001 - as above
    utils.get_json_schema_from_tools = parsers.get_json_schema_from_tools = holding


def _resolving(resolve: Callable[..., Any]) -> Callable[..., Any]:
    from vllm.tool_parsers.tool_strict_level import ToolStrictLevel  # noqa: PLC0415 - see compat/__init__.py

    @functools.wraps(resolve)
    def resolving(tools: Sequence[Any], tool_choice: Any, strict_level: Any) -> list[Any] | None:
        level = ToolStrictLevel.PARAMETER if is_forced(tool_choice) else strict_level
        resolved = resolve(tools, tool_choice, level)
        return None if resolved is None else [_with_object(tool) for tool in resolved]

    return resolving


def _with_object(tool: Any) -> Any:
    """Return a tool whose arguments are an object, where they are enforced at all."""
    function = getattr(tool, "function", tool)  # a chat's tool has it inside, a Response's is it
    if getattr(function, "strict", None) is not True:
        return tool
    changed = function.model_copy(update={"parameters": _arguments(function.parameters)})
    return changed if function is tool else tool.model_copy(update={"function": changed})


def _finding(find: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(find)
    def finding(tools: Sequence[Any] | None, tool_name: str) -> Any:
        properties = find(tools, tool_name)
        for tool in tools or ():
            function = getattr(tool, "function", tool)
            if getattr(function, "name", None) == tool_name:
                root = getattr(function, "parameters", None)
                return {name: _typed(value, root) for name, value in properties.items()}
        return properties

    return finding


def _typed(schema: Any, root: Any, deepest: int = 8) -> Any:
    """Return a schema that says itself what types a value has, as far as it or what it refers to says."""
    if not isinstance(schema, dict) or not deepest:
        return schema
    if "$ref" in schema:
        with contextlib.suppress(LookupError, AttributeError):
            return _typed(subschemas.referred(root, schema["$ref"]), root, deepest - 1)
    if "const" in schema:
        return {"enum": [schema["const"]], **schema}
    listed = {key: schema[key] for key in ("anyOf", "oneOf", "allOf") if isinstance(schema.get(key), list)}
    return {**schema, **{key: [_typed(one, root, deepest - 1) for one in listed[key]] for key in listed}}


def _arguments(parameters: dict[str, Any] | None) -> dict[str, Any]:
    """Return the schema of a call's arguments.

    Raises
    ------
    GuidedRequestError
        It allows no object.
    """
    if not parameters:
        return _NO_PARAMETERS
    named = parameters.get("type", "object")
    if named != "object" and not (isinstance(named, list) and "object" in named):
        from guided_engine.compat.api_errors import refuse  # noqa: PLC0415 - imports vLLM

        message = (
            f"the arguments of a call are an object, but a tool's parameters have the type {named!r:.80}"
        )
        refuse(GuidedError(ErrorCode.GRAMMAR_INVALID, message, path="tools"), "structural_tag")
    return {**parameters, "type": "object"}


ENTRIES: Final = (
    LedgerEntry(
        name="forced-tools",
        why="arguments of a forced call can be any JSON, which neither clients nor /v1/messages can read",
        goes_when="a forced call's arguments are held to the tool's parameters without --tool-strict-level",
        apply=_apply,
    ),
)
