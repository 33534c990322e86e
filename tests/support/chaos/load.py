"""The steady load that no fault may touch: guided requests whose answers are judged, and some unguided."""

import asyncio
import itertools
import json
import statistics
import time
from collections.abc import Iterator, Sequence
from typing import Any, Final, Self

import httpx
from devtools.tinytasks import TOPICS, task

from support.soak import traffic
from support.soak.answers import wrong_text
from support.soak.requests import Kind, Request
from support.soak.traffic import Outcome

TIMEOUT_S: Final = 60.0


def ask(prompt: str, kind: Kind, constraint: Any, regex: str | None = None, **sampling: Any) -> Request:
    """Return a greedy request that streams; `regex` where texts are judged by one."""
    sampling = {"temperature": 0, "max_tokens": 150, "stream": True, **sampling}
    return Request(prompt=prompt, kind=kind, constraint=constraint, regex=regex, sampling=sampling)


def asks() -> Iterator[Request]:
    """Yield requests for ever: known grammars, grammars that nobody has seen, and no grammar."""
    person, code, story = task("person"), task("code"), task("story")
    for number in itertools.count():
        topic = TOPICS[number % len(TOPICS)]
        yield ask("Choose", "choice", ["red", "green"])
        yield ask(person.prompt(topic), "json", json.loads(person.spec))
        yield ask("Choose", "choice", [f"yes {number}", f"no {number}"])
        yield ask(code.prompt(topic), "regex", code.spec, code.spec)
        yield ask("Fill", "json", {"enum": [f"a {number}", f"b {number}"]})
        yield ask(story.prompt(topic), "none", None, "(?s).+", max_tokens=100)


def fault(outcome: Outcome) -> str:
    """Say what is wrong with an answer that should have been a whole and a right one."""
    if not outcome.is_answered:
        return f"{outcome.status} {outcome.code} {outcome.message}"
    [choice] = outcome.choices
    if not choice.is_whole:
        return f"ended by {choice.finish_reason}: {choice.text!r}"
    return wrong_text(outcome.request, choice.text) or ""


class Load:
    """So many requests a second, however long each takes; `outcomes` is what came of them."""

    def __init__(self, client: httpx.AsyncClient, rate: float) -> None:
        self.outcomes: list[Outcome] = []
        self._client = client
        self._rate = rate
        self._begins: set[asyncio.Event] = set()
        self._sent: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._send())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        await asyncio.gather(*self._sent)

    async def _send(self) -> None:
        begin = time.monotonic()
        for number, request in enumerate(asks()):
            self._sent.append(asyncio.create_task(self._one(request)))
            await asyncio.sleep(max(0.0, begin + (number + 1) / self._rate - time.monotonic()))

    async def _one(self, request: Request) -> None:
        begins = asyncio.Event()
        self._begins.add(begins)
        self.outcomes.append(await traffic.send(self._client, request, begins.set))
        self._begins.remove(begins)

    async def admitted(self) -> None:
        """Wait until whatever is on its way now has its grammar, or was refused."""
        for begins in list(self._begins):
            await begins.wait()

    def first_tokens_s(self) -> list[float]:
        """Return the times to the first token."""
        return [one.first_s for one in self.outcomes if one.first_s is not None]


def percentile(values: Sequence[float], percent: int) -> float:
    """Return a percentile; infinite where there is nothing."""
    if len(values) < 2:
        return values[0] if values else float("inf")
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1]


def spread(seconds: Sequence[float]) -> str:
    """Return percentiles in words."""
    if not seconds:
        return "-"
    parts = [f"p{percent} {percentile(seconds, percent) * 1000:.0f}" for percent in (50, 95, 99)]
    return f"{', '.join(parts)}, most {max(seconds) * 1000:.0f} ms"
