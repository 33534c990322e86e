"""Strikes at a pod's grammar service, and the benign load that none of them may touch."""

import asyncio
import collections
import contextlib
import itertools
import json
import os
import random
import signal
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, Self

import httpx
from devtools.tinytasks import TOPICS, task

from guided_contract.wire import Hello, Prepared, Welcome
from support import grammars
from support.pod import Pod
from support.sidecar import Api, Client, descendants
from support.soak import traffic
from support.soak.answers import wrong_text
from support.soak.requests import Kind, Request
from support.soak.traffic import Outcome

# How many of 20 faults are of each kind. Signals hit an idle worker, or one that compiles for whomever. None
# stops a worker: what a worker hangs in is taken to be its grammar's fault ("endless").
EVERY: Final = {"SIGKILL": 8, "SIGSEGV": 7, "memory": 3, "endless": 2}
_APART_S: Final = 0.25
_SETTLE_S: Final = 15.0
_MORE_DESCRIPTORS: Final = 8  # connections that are kept for the next time
_OVER: Final = {(400, "grammar_compile_crashed"), (400, "grammar_compile_timeout")}
# What a request may be answered that harms its worker. One that a signal hits is tried again; a second hit is
# told as what it was. Where two ranks have the only two cores, its replacement may have too little CPU.
_ANSWERS: Final = {
    "endless": _OVER,
    "memory": {*_OVER, (400, "grammar_compile_memory")},
    "slow": {*_OVER, (200, "")},
}
_NOT_ITS_FAULT: Final = "a grammar worker crashed; its replacement could not finish"


def ask(prompt: str, kind: Kind, constraint: Any, regex: str | None = None, **sampling: Any) -> Request:
    """Return a greedy request that streams; `regex` where texts are judged by one."""
    sampling = {"temperature": 0, "max_tokens": 150, "stream": True, **sampling}
    return Request(prompt=prompt, kind=kind, constraint=constraint, regex=regex, sampling=sampling)


def _benign() -> Iterator[Request]:
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
        for request in _benign():
            self._sent.append(asyncio.create_task(self._one(request)))
            await asyncio.sleep(1 / self._rate)

    async def _one(self, request: Request) -> None:
        begins = asyncio.Event()
        self._begins.add(begins)
        self.outcomes.append(await traffic.send(self._client, request, begins.set))
        self._begins.remove(begins)

    async def admitted(self) -> None:
        """Wait until whatever is on its way now has its grammar, or was refused."""
        for begins in list(self._begins):
            await begins.wait()


async def strike(
    pod: Pod, client: httpx.AsyncClient, load: Load, seed: int, count: int
) -> tuple[list[float], list[str]]:
    """Strike grammar workers so many times, some by grammars that harm them.

    Returns the seconds from each fault until a grammar that nobody had seen was compiled and on the ranks,
    and what is wrong with what came of faults.
    """
    chance, numbers, ready_s, wrong = random.Random(seed), itertools.count(seed * 1_000_000), [], []
    sidecar = pod.sidecar

    async def attack(kind: str) -> None:
        outcome = await traffic.send(client, _hostile(kind, next(numbers)))
        late = outcome.retry_after_s is not None and outcome.message.startswith(_NOT_ITS_FAULT)
        if not late and (outcome.status, outcome.code) not in _ANSWERS[kind]:
            wrong.append(f"{kind}: {outcome.status} {outcome.code} {outcome.message}")

    async def keep_compiling() -> None:
        while True:  # so that signals find workers in the middle of it
            await attack("slow")

    async with asyncio.TaskGroup() as group, probe(pod) as ready:
        slow = group.create_task(keep_compiling())
        attacked: asyncio.Task[None] | None = None
        for _ in range(count):
            [kind] = chance.choices(list(EVERY), list(EVERY.values()))
            if kind in _ANSWERS and (attacked is None or attacked.done()):
                attacked = group.create_task(attack(kind))  # one at a time: others need workers, too
            elif workers := sorted(sidecar.workers()):
                with contextlib.suppress(ProcessLookupError):  # it has just been replaced
                    os.kill(chance.choice(workers), getattr(signal, kind, signal.SIGKILL))
            took_s, refusal = await ready()
            ready_s.append(took_s)
            wrong += [f"no worker was ready after a fault: {refusal}"] if refusal else []
            # A second hit within one compile spends its second attempt: the promise is about one.
            await load.admitted()
            await asyncio.sleep(_APART_S)
        slow.cancel()
    return ready_s, wrong


def _hostile(kind: str, number: int) -> Request:
    """Return a request with a grammar of its own, so that it is not refused unseen."""
    if kind == "endless":
        spec = grammars.endless_regex(number)
    else:
        spec = f"{number}{grammars.hungry_regex() if kind == 'memory' else grammars.slow_regex(60)}"
    # llguidance takes the regexes that keep xgrammar busy.
    return ask("x", "regex", spec, max_tokens=4, vllm_xargs={"guided_backend": "xgrammar"})


@contextlib.asynccontextmanager
async def probe(pod: Pod) -> AsyncIterator[Callable[[], Awaitable[tuple[float, str]]]]:
    """Yield what prepares an unseen grammar, as an API server does.

    It returns the seconds until that was on every rank or refused, and why it was; "" where it was not.
    """
    numbers = itertools.count()
    async with Api.connected(pod.config) as api:

        async def ready() -> tuple[float, str]:
            begin = time.monotonic()
            number, answer = api.begin("choice", f'["probe {begin} {next(numbers)}"]')
            said = await answer
            api.release(number)
            refusal = "" if isinstance(said, Prepared) else f"{said.code}: {said.message}"
            return time.monotonic() - begin, refusal

        yield ready


async def kill_service(pod: Pod) -> float:
    """Kill the grammar service; return the seconds until it takes a connection and greets."""
    pid = pod.sidecar.service_pid()
    assert pid is not None
    begin = time.monotonic()
    os.kill(pid, signal.SIGKILL)
    while True:
        client = await Client.reach(pod.config)
        try:
            client.send(Hello(role="core", pid=os.getpid(), boot="chaos"))
            if await client.receive() == Welcome():
                return time.monotonic() - begin
        except (OSError, asyncio.IncompleteReadError):
            await asyncio.sleep(0.01)  # the socket of the one that was killed
        finally:
            client.close()


async def recovered(pod: Pod) -> None:
    """Wait until grammars are compiled again."""
    async with asyncio.timeout(60), probe(pod) as ready:
        while (await ready())[1]:
            pass


class Belongings:
    """What a pod has at one moment: processes, dead ones, files, descriptors of its grammar service."""

    def __init__(self, pod: Pod) -> None:
        service = pod.sidecar.service_pid()
        assert service is not None
        below = set(descendants(service))
        run = Path(pod.config.run_dir)
        self.containers = pod.containers(), pod.sidecar.process.pid
        self._has = {
            "processes": pod.processes() - below,
            "files": {str(path.relative_to(run)) for path in run.rglob("*")},
        }
        self._dead = {pid for pid in descendants(pod.child.pid) if _is_dead(pid)}
        self._counts = {"workers": len(below), "descriptors": len([*Path(f"/proc/{service}/fd").iterdir()])}

    def beyond(self, before: "Belongings") -> list[str]:
        """Say what is here that was not there before."""
        found = [f"{name}: {more}" for name, has in self._has.items() if (more := has - before._has[name])]
        found += [f"dead processes: {self._dead}"] if self._dead else []
        most = {"workers": before._counts["workers"]}
        most["descriptors"] = before._counts["descriptors"] + _MORE_DESCRIPTORS
        return found + [f"{name}: {n}" for name, n in self._counts.items() if n > most[name]]


def left_behind(pod: Pod, before: Belongings) -> list[str]:
    """Return what is left behind once all has had time to settle; [] is as it should be."""
    deadline = time.monotonic() + _SETTLE_S
    while found := Belongings(pod).beyond(before):
        if time.monotonic() > deadline:
            return found
        time.sleep(0.2)
    return []


def _is_dead(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return False


def percentile(values: Sequence[float], percent: int) -> float:
    """Return a percentile."""
    return statistics.quantiles([*values, *values], n=100, method="inclusive")[percent - 1]


def spread(seconds: Sequence[float]) -> str:
    """Return percentiles in words."""
    parts = [f"p{percent} {percentile(seconds, percent) * 1000:.0f}" for percent in (50, 95, 99)]
    return f"{', '.join(parts)}, most {max(seconds) * 1000:.0f} ms"


def turned_away(outcomes: Sequence[Outcome]) -> dict[str, int]:
    """Return how many were told to come again, by what they were told."""
    return dict(collections.Counter(one.message for one in outcomes if one.retry_after_s is not None))
