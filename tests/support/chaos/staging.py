"""What phases are made of: the pod under its load, a report, and a look at what is left behind."""

import asyncio
import contextlib
import dataclasses
import json
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

import httpx

from support.chaos import leftovers
from support.chaos.benign import Answer, Ask, Load, percentile, send
from support.pod import Pod

_LONG_TOKENS: Final = 300
_LONG_AT_ONCE: Final = 2


@dataclasses.dataclass(slots=True)
class Report:
    """Rows to print, promises that were broken, and those about time that were."""

    name: str
    rows: list[tuple[str, str]] = dataclasses.field(default_factory=list)
    broken: list[str] = dataclasses.field(default_factory=list)
    late: list[str] = dataclasses.field(default_factory=list)

    def row(self, name: str, value: object) -> None:
        self.rows.append((name, str(value)))

    def promise(self, holds: object, what: str) -> None:
        if not holds:
            self.broken.append(f"{self.name}: {what}")

    def in_time(self, took_s: float, most_s: float, what: str) -> None:
        if not took_s <= most_s:
            self.late.append(f"{self.name}: {what} after {took_s:.2f} s")

    def faults(self, whys: Sequence[str]) -> None:
        """Note every request that did not go as promised."""
        self.broken += [f"{self.name}: {why}" for why in whys if why]


@dataclasses.dataclass(frozen=True, slots=True)
class Setting:
    """What all phases need."""

    pod: Pod
    client: httpx.AsyncClient
    load: Load
    deadline_s: float
    seed: int
    has_small_file_systems: bool


@contextlib.asynccontextmanager
async def phase(setting: Setting, name: str) -> AsyncIterator[Report]:
    """Yield a report to fill in under the benign load; then see that nothing is left behind."""
    report = Report(name)
    before = await asyncio.to_thread(leftovers.settled, setting.pod)
    containers = setting.pod.containers()
    supervisor = setting.pod.sidecar.process.pid
    async with setting.load:
        yield report
    report.row("benign requests", len(setting.load.answers))
    report.promise(setting.pod.containers() == containers, "a container was restarted")
    report.promise(setting.pod.sidecar.process.pid == supervisor, "the supervisor has gone")
    left = await asyncio.to_thread(leftovers.left_behind, setting.pod, before)
    report.row("left behind", "; ".join(left) or "nothing")
    report.promise(not left, f"left behind: {'; '.join(left)}")


async def choose(client: httpx.AsyncClient, option: str) -> Answer:
    """Ask for one fixed text."""
    fields = {"structured_outputs": {"choice": [option]}, "max_tokens": 40}
    return await send(client, Ask("Choose", fields, option.__eq__))


async def spell(client: httpx.AsyncClient, text: str) -> Answer:
    """Ask for one fixed text by a grammar in Lark's form: one that ranks load from a file."""
    fields = {"structured_outputs": {"grammar": f"start: {json.dumps(text)}"}, "max_tokens": 40}
    return await send(client, Ask("Spell", fields, text.__eq__))


@contextlib.asynccontextmanager
async def long_requests(client: httpx.AsyncClient) -> AsyncIterator[list[Answer]]:
    """Keep long guided requests running; yield those that have ended."""
    ended: list[Answer] = []
    stop = asyncio.Event()
    fields: dict[str, Any] = {
        "structured_outputs": {"regex": "[a-z ]+"},
        "min_tokens": _LONG_TOKENS,
        "max_tokens": _LONG_TOKENS,
    }

    async def run() -> None:
        while not stop.is_set():
            answer = await send(client, Ask("x", fields, bool))
            if not answer.is_turned_away:
                ended.append(answer)

    running = [asyncio.create_task(run()) for _ in range(_LONG_AT_ONCE)]
    yield ended
    stop.set()
    await asyncio.gather(*running)


def is_whole(answer: Answer) -> bool:
    """Say whether a long request had all of its tokens."""
    return answer.status == 200 and not answer.broke and answer.tokens == _LONG_TOKENS


def spread(seconds: Sequence[float]) -> str:
    """Return percentiles in words."""
    if not seconds:
        return "-"
    parts = [f"p{percent} {percentile(seconds, percent) * 1000:.0f}" for percent in (50, 95, 99)]
    return f"{', '.join(parts)}, most {max(seconds) * 1000:.0f} ms"
