"""What each route calls constraints and tools, and what a client is told to write there."""

from collections.abc import Mapping
from typing import Final, NamedTuple, get_args

from guided_contract.wire import Kind

ANY: Final = ""  # what is asked for is a constraint of some kind
KINDS: Final = frozenset(get_args(Kind))

ARGUMENTS: Final = "vllm_xargs"  # on all routes but those that say so


class Route(NamedTuple):
    """Where a route takes constraints.

    Attributes
    ----------
    read
        Paths of the objects that are nothing but a constraint.
    schema
        How to ask for a JSON schema.
    others
        How to ask for another kind, which stands for %s.
    tools
        How to write tools; "": the route has none.
    call
        How to force a call of one.
    arguments
        Where it takes what vLLM gives to plugins.
    """

    read: tuple[str, ...]
    schema: str
    others: str = 'structured_outputs: {"%s": ...}'
    tools: str = 'tools: [{"type": "function", "function": {"name": NAME, "parameters": SCHEMA}}]'
    call: str = 'tool_choice: {"type": "function", "function": {"name": NAME}}'
    arguments: str = ARGUMENTS

    def write(self, meaning: str) -> str:
        """Return what to write on this route for what was meant."""
        if meaning in OPTIONS:
            return OPTIONS[meaning]
        if meaning == "tool_choice":
            return f"write {self.call} instead" if self.tools else NO_TOOLS
        if meaning == ANY:
            return f"write {self.schema} or {self.others % 'KIND'} instead"
        return f"write {self.schema if meaning == 'json' else self.others % meaning} instead"


OPTIONS: Final = {
    "backend": 'write vllm_xargs: {"guided_backend": "xgrammar"} or "guidance" instead',
    "whitespace": 'write vllm_xargs: {"guided_whitespace": "flexible"}, "compact" or "unbounded" instead',
}
NO_TOOLS: Final = "only /v1/chat/completions, /v1/responses and /v1/messages have tools"
_OPENAI: Final = Route(
    ("response_format", "structured_outputs"),
    'response_format: {"type": "json_schema", "json_schema": {"name": NAME, "schema": SCHEMA}}',
)
ROUTES: Final[Mapping[str, Route]] = {
    **dict.fromkeys(("/v1/chat/completions", "/v1/chat/completions/batch", "/invocations"), _OPENAI),
    "/v1/completions": _OPENAI._replace(tools=""),
    "/v1/responses": Route(
        ("text.format", "structured_outputs"),
        'text: {"format": {"type": "json_schema", "name": NAME, "schema": SCHEMA}}',
        tools='tools: [{"type": "function", "name": NAME, "parameters": SCHEMA}]',
        call='tool_choice: {"type": "function", "name": NAME}',
    ),
    "/v1/messages": Route(
        ("output_config.format",),
        'output_config: {"format": {"type": "json_schema", "schema": SCHEMA}}',
        'structured_outputs: {"%s": ...} on /v1/chat/completions',
        tools='tools: [{"name": NAME, "input_schema": SCHEMA}]',
        call='tool_choice: {"type": "tool", "name": NAME}',
    ),
    "/inference/v1/generate": Route(
        ("sampling_params.structured_outputs",),
        'sampling_params: {"structured_outputs": {"json": SCHEMA}}',
        'sampling_params: {"structured_outputs": {"%s": ...}}',
        tools="",
        arguments="sampling_params.extra_args",
    ),
}
# Routes that take no constraint at all.
UNGUIDED: Final[Mapping[str, Route]] = {
    "/generative_scoring": Route(
        (),
        f"{_OPENAI.schema} on /v1/chat/completions",
        f"{_OPENAI.others} on /v1/chat/completions",
        tools="",
    )
}
