"""Draws one token many times from a served model, and asks for the probabilities that it draws from."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
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

    def draw(seed: int) -> list[int]:
        fields = {"n": _PER_REQUEST, "seed": seed, "temperature": 1, "max_tokens": position + 1}
        answer = _post(url, request.body() | fields)
        return [choice["token_ids"][position] for choice in answer["choices"]]

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        drawn = pool.map(draw, range(0, count, _PER_REQUEST))
        return [token for tokens in drawn for token in tokens]


def _post(url: str, body: dict[str, Any]) -> Any:
    return httpx.post(f"{url}/v1/completions", json=body, timeout=_TIMEOUT_S).raise_for_status().json()
