"""Where each route takes constraints and tools, and what a client is told to write there."""

from collections.abc import Mapping
from typing import Final, NamedTuple

NO_TOOLS: Final = (
    "only /v1/chat/completions, /v1/responses and /v1/messages take tools, at the top level of the body"
)
ARGUMENTS: Final = "vllm_xargs"  # where routes take what vLLM gives to plugins, unless they say otherwise


class Tools(NamedTuple):
    """How a route writes tools.

    Attributes
    ----------
    schema
        The key of the arguments' schema.
    holder
        The key of a tool that holds its function; "": the tool is it.
    type
        Of tools that are functions, if not all are; the others are vLLM's own affair.
    """

    schema: str = "parameters"
    holder: str = ""
    type: str = ""


class Route(NamedTuple):
    """Where a route takes constraints.

    Attributes
    ----------
    read
        Paths of the objects that are nothing but a constraint.
    write
        How to ask for one.
    """

    read: tuple[str, ...]
    write: str
    tools: Tools | None = None
    arguments: str = ARGUMENTS


_OPENAI: Final = Route(
    ("response_format", "structured_outputs"),
    'response_format: {"type": "json_schema", "json_schema": {"name": NAME, "schema": SCHEMA}} '
    'or structured_outputs: {"KIND": ...}',
)
ROUTES: Final[Mapping[str, Route]] = {
    "/v1/chat/completions": _OPENAI._replace(tools=Tools(holder="function")),
    **dict.fromkeys(("/v1/completions", "/v1/chat/completions/batch", "/invocations"), _OPENAI),
    "/v1/responses": Route(
        ("text.format", "structured_outputs"),
        'text: {"format": {"type": "json_schema", "name": NAME, "schema": SCHEMA}} '
        'or structured_outputs: {"KIND": ...}',
        Tools(type="function"),
    ),
    "/v1/messages": Route(
        ("output_config.format",),
        'output_config: {"format": {"type": "json_schema", "schema": SCHEMA}}',
        Tools("input_schema"),
    ),
    "/inference/v1/generate": Route(
        ("sampling_params.structured_outputs",),
        'sampling_params: {"structured_outputs": {"KIND": ...}}',
        arguments="sampling_params.extra_args",
    ),
}
# The keys of bodies that grammars come from.
HOLDERS: Final = (
    *dict.fromkeys(path.partition(".")[0] for route in ROUTES.values() for path in route.read),
    *("tools", "tool_choice"),
)


def arguments(route: str) -> str:
    """Return where a route takes what vLLM gives to plugins."""
    return ROUTES[route].arguments if route in ROUTES else ARGUMENTS
