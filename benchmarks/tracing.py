"""`make bench-telemetry`: what traces cost a pod's throughput, on real vLLM and this CPU.

Two pods of the tiny model, one rank each, as `guidedmodel run` starts them: one sends no traces, the other
sends all of them to a collector that takes everything. They are asked in turns, in an order that changes,
each with the same guided requests; a round's figures make a pair. A third turn asks the pod with traces for
requests whose caller does not sample: the same process, so that two processes' own difference shows.

A rank has one thread, bound to no CPU: vLLM binds teams of threads to CPUs where the API server and the
sidecar run too, and whoever waits for a team that spins waits for luck; pairs then differ by 30 % and more.

Beside throughput, the CPU seconds that the whole pod takes for its tokens: where every core is busy they
decide throughput, and they hardly depend on what else the machine does.
"""

import asyncio
import contextlib
import itertools
import os
import secrets
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final, NamedTuple

import aiohttp
from devtools import deploy
from rankbench import processes, statistics

from guided_operator.api import parse
from guided_operator.cli.local.pod import LocalPod, containers
from guided_operator.cli.local.site import lay_out, local_site

MINUTES: Final = float(os.environ.get("MINUTES", "20"))
MOST_LOSS: Final = 0.02
CONCURRENT: Final = 16
REQUESTS: Final = 16  # one wave: the shorter a turn, the more pairs, and the closer in time
TOKENS: Final = 96
TURNS: Final = ("off", "on", "on, unsampled")
TIMEOUT_S: Final = 120


class Target(NamedTuple):
    """A pod to ask: the URL of its API, and the processes that its containers began with."""

    url: str
    pids: tuple[int, ...]

    def cpu_s(self) -> float:
        """Return the CPU seconds that all of its processes have taken so far."""
        return sum(map(processes.cpu_s, self.pids))


class Turn(NamedTuple):
    """What one turn came to."""

    tokens_per_s: float
    cpu_ms_per_token: float


class Sink(BaseHTTPRequestHandler):
    """A collector that reads what it gets, and counts the bytes."""

    protocol_version = "HTTP/1.1"
    taken = 0

    def do_POST(self) -> None:
        """Take one export."""
        Sink.taken += len(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
        """Stay silent."""


def main() -> int:
    """Measure and print; 1 if the bar is not met."""
    with contextlib.ExitStack() as stack:
        sink = ThreadingHTTPServer(("127.0.0.1", 0), Sink)
        threading.Thread(target=sink.serve_forever, daemon=True).start()
        stack.callback(sink.shutdown)
        targets = {
            "off": stack.enter_context(_pod(None)),
            "on": stack.enter_context(_pod(f"http://127.0.0.1:{sink.server_port}")),
        }
        targets["on, unsampled"] = targets["on"]
        turns = asyncio.run(_measure(targets))
    return _report(turns)


@contextlib.contextmanager
def _pod(endpoint: str | None) -> Iterator[Target]:
    """Start a pod, and stop it at the end."""
    sample = deploy.sample()
    sample["spec"]["parallelism"] = {"tensor": 1}
    del sample["spec"]["telemetry"]
    with tempfile.TemporaryDirectory(prefix="gmb-", ignore_cleanup_errors=True) as folder:
        volumes = {"models": deploy.models()}
        site = local_site(Path(folder), volumes=volumes, port=None, otlp_endpoint=endpoint)
        plan = containers(lay_out(parse(sample), {}, site, {}))
        traces = "on" if endpoint else "off"
        pod = LocalPod(plan, Path(folder), lambda said: print(f"traces {traces}: {said}", flush=True))
        try:
            pod.start()
            yield Target(f"http://127.0.0.1:{site.ports.engine}", tuple(pod.pids.values()))
        finally:
            pod.stop()


async def _measure(targets: dict[str, Target]) -> dict[str, list[Turn]]:
    """Return what each turn came to, round by round."""
    turns: dict[str, list[Turn]] = {turn: [] for turn in TURNS}
    timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
    async with aiohttp.ClientSession(timeout=timeout) as session:
        for turn in TURNS * 2:
            await _turn(session, targets[turn], turn)  # warms up
        until = time.monotonic() + 60 * MINUTES
        for order in itertools.cycle(itertools.permutations(TURNS)):
            for turn in order:
                turns[turn].append(await _turn(session, targets[turn], turn))
            if time.monotonic() > until:
                return turns
    raise AssertionError("unreachable")


async def _turn(session: aiohttp.ClientSession, target: Target, turn: str) -> Turn:
    gate = asyncio.Semaphore(CONCURRENT)
    sampled = "00" if turn.endswith("unsampled") else "01"

    async def ask(number: int) -> int:
        body = {
            "model": "tiny",
            "prompt": f"{number}:",
            "temperature": 0,
            "min_tokens": TOKENS,
            "max_tokens": TOKENS,
            "structured_outputs": {"regex": "[a-z ]+"},
        }
        traceparent = f"00-{secrets.token_hex(16)}-{secrets.token_hex(8)}-{sampled}"
        async with (
            gate,
            session.post(
                f"{target.url}/v1/completions", json=body, headers={"traceparent": traceparent}
            ) as answer,
        ):
            answer.raise_for_status()
            return int((await answer.json())["usage"]["completion_tokens"])

    before_s, began = target.cpu_s(), time.perf_counter()
    tokens = sum(await asyncio.gather(*map(ask, range(REQUESTS))))
    took_s = time.perf_counter() - began
    return Turn(tokens / took_s, 1000 * (target.cpu_s() - before_s) / tokens)


def _report(turns: dict[str, list[Turn]]) -> int:
    rounds = len(turns["off"])
    print(f"\n{os.cpu_count()} cores, {rounds} rounds of {REQUESTS} guided requests, {CONCURRENT} at once,")
    print(f"{TOKENS} tokens each; {Sink.taken / 1e6:.1f} MB of traces taken by the collector\n")
    speeds = {name: [turn.tokens_per_s for turn in made] for name, made in turns.items()}
    costs = {name: [turn.cpu_ms_per_token for turn in made] for name, made in turns.items()}
    print("| | tok/s | CPU ms a token |\n| --- | --- | --- |")
    for name in TURNS:
        speed, took = statistics.mean(speeds[name]).value, statistics.mean(costs[name]).value
        print(f"| traces {name} | {speed:.0f} | {took:.2f} |")
    print("\n| traces on, against | throughput (95 %) | loss at most | CPU a token (95 %) |")
    print("| --- | --- | --- | --- |")
    losses = {}
    for base in ("off", "on, unsampled"):
        ratio = statistics.paired_ratio(speeds["on"], speeds[base])
        cost = statistics.paired_ratio(costs["on"], costs[base])
        losses[base] = 1 - ratio.low
        print(
            f"| {base} | {ratio.value:.4f} ({ratio.low:.4f} to {ratio.high:.4f}) | {losses[base]:.2%} "
            f"| {cost.value:.4f} ({cost.low:.4f} to {cost.high:.4f}) |"
        )
    return int(losses["off"] > MOST_LOSS)


if __name__ == "__main__":
    sys.exit(main())
