"""Sends requests to a served model as impatient clients do, and keeps what became of each."""

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Sequence
from typing import Any

import httpx
import msgspec

from support.soak.requests import Request

TIMEOUT_S = 240.0
MOST_TRIES = 4


class Choice(msgspec.Struct):
    """One generated sequence, as much of it as came."""

    tokens: list[int] = []
    text: str = ""
    finish_reason: str | None = None
    stop_reason: str | int | None = None

    @property
    def is_whole(self) -> bool:
        """Whether the model itself ended it: no token limit, no stop string."""
        return self.finish_reason == "stop" and self.stop_reason is None


class Outcome(msgspec.Struct):
    """What became of a request."""

    request: Request
    trace_id: str = ""
    status: int = 0
    code: str = ""  # also of an error at the end of a stream, or what broke the connection
    message: str = ""
    choices: list[Choice] = []
    is_aborted: bool = False
    retry_after_s: float | None = None  # of a 503 that says when to come again: a busy machine's, no fault
    tries: int = 1

    @property
    def is_answered(self) -> bool:
        return self.status == 200 and not self.code and not self.is_aborted


async def send_all(url: str, requests: Sequence[Request], *, at_once: int) -> list[Outcome]:
    """Send requests in order, so many at once that each finds others of every kind in its batch."""
    places = asyncio.Semaphore(at_once)
    limits = httpx.Limits(max_connections=2 * at_once)
    async with httpx.AsyncClient(base_url=url, timeout=TIMEOUT_S, limits=limits) as client:

        async def place(request: Request) -> Outcome:
            async with places:
                return await persist(client, request)

        return await asyncio.gather(*map(place, requests))


async def persist(client: httpx.AsyncClient, request: Request) -> Outcome:
    """Send a request, again where the pod asks for it, and keep what came of the last try."""
    tries = 1
    while (outcome := await send(client, request)).retry_after_s is not None and tries < MOST_TRIES:
        await asyncio.sleep(outcome.retry_after_s)
        tries += 1
    outcome.tries = tries
    return outcome


async def send(client: httpx.AsyncClient, request: Request) -> Outcome:
    """Send a request once, in a trace of its own."""
    outcome = Outcome(request=request, trace_id=secrets.token_hex(16))
    try:
        async with asyncio.timeout(request.abort_after_s):
            await _receive(client, outcome)
    except TimeoutError:
        outcome.is_aborted = True
    except (httpx.HTTPError, ValueError) as error:
        outcome.code, outcome.message = type(error).__name__, str(error)
    return outcome


async def _receive(client: httpx.AsyncClient, outcome: Outcome) -> None:
    headers = {"traceparent": f"00-{outcome.trace_id}-{'1' * 16}-01"}
    begin = client.stream("POST", "/v1/completions", json=outcome.request.body(), headers=headers)
    async with begin as response:
        outcome.status = response.status_code
        if response.status_code == 503 and "Retry-After" in response.headers:
            outcome.retry_after_s = float(response.headers["Retry-After"])
        choices: dict[int, Choice] = {}
        async for event in _events(response):
            if error := event.get("error"):
                outcome.code = str(error.get("code") or error.get("type"))
                outcome.message = str(error.get("message"))
            for part in event.get("choices", ()):
                choice = choices.setdefault(part["index"], Choice())
                choice.tokens = choice.tokens + (part["token_ids"] or [])
                choice.text += part["text"]
                choice.finish_reason = part["finish_reason"]
                choice.stop_reason = part["stop_reason"]
            outcome.choices = [choices[index] for index in sorted(choices)]


async def _events(response: httpx.Response) -> AsyncIterator[dict[str, Any]]:
    """Yield a stream's events; the one of an answer that is whole, or an error."""
    if not response.headers.get("Content-Type", "").startswith("text/event-stream"):
        yield json.loads(await response.aread())
        return
    async for line in response.aiter_lines():
        if line.startswith("data: {"):
            yield json.loads(line.removeprefix("data: "))
