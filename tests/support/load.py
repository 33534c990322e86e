"""Clients of a model, run in a pod: they go through its Service, and nothing is tried again.

`python load.py URL MODEL`: for ever, a line of JSON about everything so far, twice a second. Each client has
its own way: a connection kept for good or one for each request, a whole answer or a stream, guided or not.
"""

import asyncio
import itertools
import json
import sys
import time
from dataclasses import dataclass, field
from typing import Any

import aiohttp

CLIENTS = 16
SCHEMA = {"type": "object", "properties": {"a": {"enum": ["stone", "water"]}}, "required": ["a"]}


@dataclass
class Told:
    """What came of all requests so far. `failed`: how each failed one did, at most so many."""

    answered: int = 0
    goodbyes: int = 0  # answers after which the server wanted no more on that connection
    failures: int = 0
    failed: list[str] = field(default_factory=list)


async def _client(number: int, url: str, model: str, told: Told) -> None:
    for turn in itertools.count():
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=120)) as session:
            for _ in range(1 if number % 4 == 3 else 1_000_000):  # a session keeps its connection
                try:
                    await _ask(session, f"{url}/v1/completions", _body(number + turn, model), told)
                except (aiohttp.ClientError, TimeoutError, ValueError) as error:
                    told.failures += 1
                    if len(told.failed) < 20:
                        told.failed.append(f"{time.strftime('%X')} client {number}: {error!r}")
                await asyncio.sleep(0.02)  # they are many; no failure may make one of them hot


async def _ask(session: aiohttp.ClientSession, url: str, body: dict[str, Any], told: Told) -> None:
    async with session.post(url, json=body) as answer:
        text = await answer.text()
        if answer.status != 200:
            raise ValueError(f"{answer.status} {text[:200]}")
        if body.get("stream"):
            if not text.rstrip().endswith("data: [DONE]") or '"error"' in text:
                raise ValueError(f"the stream ends so: {text[-200:]}")
        elif json.loads(text)["choices"][0]["finish_reason"] not in {"stop", "length"}:
            raise ValueError(text[:200])
        told.answered += 1
        told.goodbyes += answer.headers.get("Connection") == "close"


def _body(number: int, model: str) -> dict[str, Any]:
    body: dict[str, Any] = {"model": model, "prompt": "x", "max_tokens": 30 + 10 * (number % 8)}
    if number % 2:
        body["stream"] = True
    if number % 3 == 0:
        body["response_format"] = {"type": "json_schema", "json_schema": {"name": "s", "schema": SCHEMA}}
    else:
        body["ignore_eos"] = True
    return body


async def _tell(told: Told) -> None:
    while True:
        print(json.dumps(vars(told)), flush=True)  # noqa: T201 - what the program is for
        await asyncio.sleep(0.5)


async def _main(url: str, model: str) -> None:
    told = Told()
    await asyncio.gather(_tell(told), *(_client(number, url, model, told) for number in range(CLIENTS)))


if __name__ == "__main__":
    asyncio.run(_main(*sys.argv[1:]))
