"""The phases that strike the grammar service itself; what each promises is in its report."""

import asyncio
import collections
import contextlib
import os
import random
import signal
import time
from collections.abc import Mapping
from typing import Final

from guided_contract.wire import Hello, Welcome
from support.chaos.benign import first_tokens_s, percentile
from support.chaos.faults import MIX, Fault, Strikes, probe
from support.chaos.hostile import MARGIN_S
from support.chaos.staging import Report, Setting, choose, is_whole, long_requests, phase, spread
from support.pod import Pod
from support.sidecar import Client

BACK_S: Final = 1.0  # a service that was killed takes connections again
READY_S: Final = 1.0  # a worker compiles again after a fault, at p99
_ALIVE_S: Final = (2.2, 4.5)  # between two kills of the service


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
    report.row("time to first token", spread(firsts))
    return report, p99_s


async def workers(
    setting: Setting, number: int, quiet_p99_s: float, mix: Mapping[Fault, int] = MIX
) -> Report:
    """Strike grammar workers so many times."""
    strikes = Strikes(setting.pod, setting.client, setting.load, setting.seed, mix)
    async with phase(setting, "workers") as report:
        await strikes.run(number)
    answers = setting.load.answers
    report.row("faults", ", ".join(f"{kind} {count}" for kind, count in sorted(strikes.counts.items())))
    report.faults([answer.why for answer in answers])
    report.faults([attack.why for attack in strikes.attacks])
    report.row("hostile requests", len(strikes.attacks))
    report.row("a worker compiles again", spread(strikes.ready_s))
    report.promise(not strikes.refusal, f"no worker was ready after a fault: {strikes.refusal}")
    report.in_time(strikes.ready_p99_s, READY_S, "a worker was ready")
    for attack in strikes.attacks:
        report.in_time(attack.until_s, setting.deadline_s + MARGIN_S, f"{attack.kind} was answered")
    firsts = first_tokens_s(answers)
    ratio = percentile(firsts, 99) / quiet_p99_s
    report.row("time to first token", spread(firsts))
    report.row("its p99 of the quiet one", f"{ratio:.2f}")
    return report


async def service(setting: Setting, kills: int) -> Report:
    """Kill the grammar service so many times, under long requests too."""
    chance = random.Random(setting.seed)
    back_s: list[float] = []
    async with phase(setting, "service") as report, long_requests(setting.client) as long:
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
    report.row("the service takes connections again", spread(back_s))
    report.in_time(max(back_s), BACK_S, "the service was back")
    report.row("long requests that finished", f"{sum(is_whole(one) for one in long)} of {len(long)}")
    report.faults([f"long request: {one.why or one.tokens}" for one in long if not is_whole(one)])
    away = [answer for answer in answers if answer.is_turned_away]
    after = ", ".join(sorted({str(answer.retry_after) for answer in away}))
    report.row("refused for now", f"{len(away)}, Retry-After {after}" if away else "0")
    for message, count in collections.Counter(answer.message for answer in away).most_common():
        report.row(f"... {count} times", message)
    report.faults([answer.why for answer in answers if not answer.is_turned_away])
    report.row("time to first token", spread(first_tokens_s(answers)))
    return report


async def budget(setting: Setting) -> Report:
    """Kill all workers until the restart budget is spent; then let it recover."""
    restart = setting.pod.config.restart
    async with phase(setting, "budget") as report:
        await choose(setting.client, "known")
        kills = await _spend(setting.pod, restart.max_attempts)
        began = time.monotonic()
        refused = await choose(setting.client, "unseen")
        report.row("kills", kills)
        report.row("refused with", f"{refused.status} {refused.code}, Retry-After {refused.retry_after}")
        report.promise(refused.code == "grammar_service_exhausted", "the budget was not spent")
        report.promise(
            0 < float(refused.retry_after or "nan") <= restart.reset_after_s + 1, "Retry-After is wrong"
        )
        known = await choose(setting.client, "known")
        report.promise(not known.why, f"a known grammar: {known.why}")
        for number in range(100):
            answer = await choose(setting.client, f"again {number}")
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
