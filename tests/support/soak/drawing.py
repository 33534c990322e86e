"""Draws one token many times from a served model, and asks for the probabilities that it draws from."""

import asyncio
from collections.abc import Sequence
from typing import Any

import httpx

from support.soak.requests import Request

_PER_REQUEST = 100
_AT_ONCE = 4
_TIMEOUT_S = 240.0
_VOCABULARY = 8192


def prompt_tokens(url: str, request: Request) -> list[int]:
    """Return the prompt's tokens as the server counts them."""
    answer = _post(url, request.body() | {"max_tokens": 1})
    tokens: list[int] = answer["choices"][0]["prompt_token_ids"]
    return tokens


def logprobs(url: str, prompt: Sequence[int]) -> dict[int, float]:
    """Return every token's log-probability after a prompt, unguided."""
    fields = {"max_tokens": 1, "logprobs": _VOCABULARY, "return_tokens_as_token_ids": True}
    answer = _post(url, {"model": "tiny", "prompt": list(prompt), **fields})
    known = answer["choices"][0]["logprobs"]["top_logprobs"][0]
    return {int(name.removeprefix("token_id:")): value for name, value in known.items()}


def tokens_at(url: str, request: Request, position: int, count: int) -> list[int]:
    """Return the token at a position of `count` answers, each of a seed of its own, at temperature 1."""

    async def draw() -> list[int]:
        places = asyncio.Semaphore(_AT_ONCE)
        async with httpx.AsyncClient(base_url=url, timeout=_TIMEOUT_S) as client:

            async def one(seed: int) -> list[int]:
                fields = {"n": _PER_REQUEST, "seed": seed, "temperature": 1, "max_tokens": position + 1}
                async with places:
                    response = await client.post("/v1/completions", json=request.body() | fields)
                choices = response.raise_for_status().json()["choices"]
                return [choice["token_ids"][position] for choice in choices]

            drawn = await asyncio.gather(*map(one, range(0, count, _PER_REQUEST)))
        return [token for tokens in drawn for token in tokens]

    return asyncio.run(draw())


def _post(url: str, body: dict[str, Any]) -> Any:
    return httpx.post(f"{url}/v1/completions", json=body, timeout=_TIMEOUT_S).raise_for_status().json()
