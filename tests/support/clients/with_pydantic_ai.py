"""pydantic-ai: an agent's output by a tool, which is its default, and by the model's own schemas."""

import asyncio
from collections.abc import Sequence
from typing import Any, Final

from pydantic_ai import Agent, NativeOutput
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider

from support.clients.cases import MAX_TOKENS, PROMPT, Card, Cat, Dog, Everyday, Home

_SETTINGS: Final[Any] = {"temperature": 0, "max_tokens": MAX_TOKENS}


def _agent(url: str, output: Any, model: Any = OpenAIChatModel) -> Agent[None, Any]:
    provider = OpenAIProvider(base_url=f"{url}/v1", api_key="none")
    # The first answer must do.
    return Agent(model("tiny", provider=provider), output_type=output, retries=0, model_settings=_SETTINGS)


def _run(url: str, output: Any, model: Any = OpenAIChatModel) -> Sequence[Any]:
    async def ask() -> Any:
        return (await _agent(url, output, model).run(PROMPT)).output

    return [asyncio.run(ask())]


def _stream(url: str) -> Sequence[Any]:
    async def ask() -> Any:
        async with _agent(url, NativeOutput(Card)).run_stream(PROMPT) as result:
            pieces = [piece async for piece in result.stream_output(debounce_by=None)]
            assert pieces  # what came before the proof comes in one
            return await result.get_output()

    return [asyncio.run(ask())]


CALLS: Final = {
    "output_type (a tool), everyday types": lambda url: _run(url, Everyday),
    "a union (two tools)": lambda url: _run(url, [Cat, Dog]),
    "NativeOutput, run_stream": _stream,
    "NativeOutput by Responses": lambda url: _run(url, NativeOutput(Home), OpenAIResponsesModel),
}
