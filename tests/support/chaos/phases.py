"""The phases of a run, each on the same pod; what each promises is in its report."""

import asyncio
import contextlib
import dataclasses
import os
import random
import signal
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

import httpx

from guided_contract.wire import Hello, Welcome
from support.chaos import leftovers
from support.chaos.benign import Answer, Ask, Load, first_tokens_s, percentile, send
from support.chaos.faults import Strikes, probe
from support.chaos.leftovers import Belongings
from support.pod import Pod
from support.sidecar import Client

BACK_S: Final = 1.0  # a service that was killed takes connections again
READY_S: Final = 1.0  # a worker compiles again after a fault, at p99
_LONG_TOKENS: Final = 300
_LONG_AT_ONCE: Final = 2
_ALIVE_S: Final = (2.2, 4.5)  # between two kills of the service


@dataclasses.dataclass(slots=True)
class Report:
    """Rows to print, and promises that were broken."""

    name: str
    rows: list[tuple[str, str]] = dataclasses.field(default_factory=list)
    broken: list[str] = dataclasses.field(default_factory=list)

    def row(self, name: str, value: object) -> None:
        self.rows.append((name, str(value)))

    def promise(self, holds: object, what: str) -> None:
        if not holds:
            self.broken.append(f"{self.name}: {what}")

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


@contextlib.asynccontextmanager
async def phase(setting: Setting, name: str) -> AsyncIterator[Report]:
    """Yield a report to fill in under the benign load; then see that nothing is left behind."""
    report = Report(name)
    before = Belongings.of(setting.pod)
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


async def warm(setting: Setting) -> None:
    """Send a little of everything: what is loaded and opened once is then there."""
    async with setting.load:
        await asyncio.sleep(3)
    await _recovered(setting.pod)


async def quiet(setting: Setting, seconds: float) -> tuple[Report, float]:
    """Send the benign load alone; return its p99 time to the first token too."""
    async with phase(setting, "quiet") as report:
        await asyncio.sleep(seconds)
    answers = setting.load.answers
    report.faults([answer.why for answer in answers])
    firsts = first_tokens_s(answers)
    p99_s = percentile(firsts, 99)
    report.row("time to first token", _spread(firsts))
    return report, p99_s


async def workers(setting: Setting, number: int, quiet_p99_s: float) -> Report:
    """Strike grammar workers so many times."""
    strikes = Strikes(setting.pod, setting.client, setting.deadline_s, setting.seed)
    async with phase(setting, "workers") as report:
        await strikes.run(number)
    answers = setting.load.answers
    report.row("faults", ", ".join(f"{kind} {count}" for kind, count in sorted(strikes.counts.items())))
    report.faults([answer.why for answer in answers])
    report.faults([attack.why for attack in strikes.attacks])
    report.row("hostile requests", len(strikes.attacks))
    report.row("a worker compiles again", _spread(strikes.ready_s))
    report.promise(strikes.ready_p99_s <= READY_S, f"a worker was ready after {strikes.ready_p99_s:.2f} s")
    firsts = first_tokens_s(answers)
    ratio = percentile(firsts, 99) / quiet_p99_s
    report.row("time to first token", _spread(firsts))
    report.row("its p99 of the quiet one", f"{ratio:.2f}")
    return report


async def service(setting: Setting, kills: int) -> Report:
    """Kill the grammar service so many times, under long requests too."""
    chance = random.Random(setting.seed)
    back_s: list[float] = []
    async with phase(setting, "service") as report, _long_requests(setting.client) as long:
        for _ in range(kills):
            await asyncio.sleep(chance.uniform(*_ALIVE_S))
            pid = setting.pod.sidecar.service_pid()
            assert pid is not None
            begin = time.monotonic()
            os.kill(pid, signal.SIGKILL)
            await _reach(setting.pod)
            back_s.append(time.monotonic() - begin)
        await _recovered(setting.pod)
    answers = setting.load.answers
    report.row("kills", kills)
    report.row("the service takes connections again", _spread(back_s))
    report.promise(max(back_s) <= BACK_S, f"the service was back after {max(back_s):.2f} s")
    report.row("long requests that finished", f"{sum(_is_whole(one) for one in long)} of {len(long)}")
    report.faults([f"long request: {one.why or one.tokens}" for one in long if not _is_whole(one)])
    away = [answer for answer in answers if answer.is_turned_away]
    after = ", ".join(sorted({str(answer.retry_after) for answer in away}))
    report.row("refused for now", f"{len(away)}, Retry-After {after}" if away else "0")
    report.faults([answer.why for answer in answers if not answer.is_turned_away])
    report.row("time to first token", _spread(first_tokens_s(answers)))
    return report


async def budget(setting: Setting) -> Report:
    """Kill all workers until the restart budget is spent; then let it recover."""
    restart = setting.pod.config.restart
    async with phase(setting, "budget") as report:
        await _choose(setting.client, "known")
        kills = await _spend(setting.pod, restart.max_attempts)
        began = time.monotonic()
        refused = await _choose(setting.client, "unseen")
        report.row("kills", kills)
        report.row("refused with", f"{refused.status} {refused.code}, Retry-After {refused.retry_after}")
        report.promise(refused.code == "grammar_service_exhausted", "the budget was not spent")
        report.promise(
            0 < float(refused.retry_after or "nan") <= restart.reset_after_s + 1, "Retry-After is wrong"
        )
        known = await _choose(setting.client, "known")
        report.promise(not known.why, f"a known grammar: {known.why}")
        for number in range(100):
            answer = await _choose(setting.client, f"again {number}")
            if not answer.why:
                break
            await asyncio.sleep(0.1)
        report.row("recovered after", f"{time.monotonic() - began:.1f} s")
        report.promise(not answer.why, f"it never recovered: {answer.why}")
    # Whose grammar was new meanwhile lost two workers, or found none.
    costs = {"grammar_compile_crashed", "grammar_service_exhausted"}
    report.faults([answer.why for answer in setting.load.answers if answer.code not in costs])
    return report


async def _spend(pod: Pod, attempts: int) -> int:
    """Kill workers as they come until none come any more; return how many."""
    kills = 0
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        workers = pod.sidecar.workers()
        if not workers and kills >= attempts:
            return kills
        for pid in workers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                kills += 1
        await asyncio.sleep(0.02)
    return kills


async def _choose(client: httpx.AsyncClient, option: str) -> Answer:
    fields = {"structured_outputs": {"choice": [option]}, "max_tokens": 40}
    return await send(client, Ask("Choose", fields, option.__eq__))


@contextlib.asynccontextmanager
async def _long_requests(client: httpx.AsyncClient) -> AsyncIterator[list[Answer]]:
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


def _is_whole(answer: Answer) -> bool:
    return answer.status == 200 and not answer.broke and answer.tokens == _LONG_TOKENS


async def _reach(pod: Pod) -> None:
    """Wait until the service takes a connection and greets."""
    while True:
        client = await Client.reach(pod.config)
        try:
            client.send(Hello(role="core", pid=os.getpid(), boot="chaos"))
            if await client.receive() == Welcome():
                return
        except (OSError, asyncio.IncompleteReadError):
            await asyncio.sleep(0.01)  # the socket of the one that was killed
        finally:
            client.close()


async def _recovered(pod: Pod) -> None:
    """Wait until grammars are compiled again."""
    async with asyncio.timeout(60):
        async with probe(pod.config) as ready:
            while await ready() == float("inf"):
                pass


def _spread(seconds: Sequence[float]) -> str:
    if not seconds:
        return "-"
    parts = [f"p{percent} {percentile(seconds, percent) * 1000:.0f}" for percent in (50, 95, 99)]
    return f"{', '.join(parts)}, most {max(seconds) * 1000:.0f} ms"
