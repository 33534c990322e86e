"""`make bench-telemetry`: what traces cost a pod's throughput, on real vLLM and this CPU.

Two pods of the tiny model, one rank each, as `guidedmodel run` starts them: one sends no traces, the other
sends all of them to a collector that takes everything. They are asked in turns, in an order that changes,
each with the same guided requests; a round's figures make a pair.

A rank has one thread, bound to no CPU: vLLM binds teams of threads to CPUs where the API server and the
sidecar run too, and whoever waits for a team that spins waits for luck; pairs then differ by 30 % and more.
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
from typing import Final

import aiohttp
from devtools import deploy
from rankbench import statistics

from guided_operator.api import parse
from guided_operator.cli.local.pod import LocalPod, containers
from guided_operator.cli.local.site import lay_out, local_site

MINUTES: Final = float(os.environ.get("MINUTES", "20"))
MOST_LOSS: Final = 0.02
REQUESTS: Final = 16  # at once: the shorter a turn, the more pairs, and the closer in time
TOKENS: Final = 96
TURNS: Final = ("off", "on")
TIMEOUT_S: Final = 120


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
        speeds = asyncio.run(_measure(targets))
    return _report(speeds)


@contextlib.contextmanager
def _pod(endpoint: str | None) -> Iterator[str]:
    """Start a pod, and stop it at the end; the URL of its API is what it gives."""
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
            yield f"http://127.0.0.1:{site.ports.engine}"
        finally:
            pod.stop()


async def _measure(targets: dict[str, str]) -> dict[str, list[float]]:
    """Return the tokens a second of each turn, round by round."""
    speeds: dict[str, list[float]] = {turn: [] for turn in TURNS}
    timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
    async with aiohttp.ClientSession(timeout=timeout) as session:
        for turn in TURNS * 2:
            await _turn(session, targets[turn])  # warms up
        until = time.monotonic() + 60 * MINUTES
        for order in itertools.cycle(itertools.permutations(TURNS)):
            for turn in order:
                speeds[turn].append(await _turn(session, targets[turn]))
            if time.monotonic() > until:
                break
    return speeds


async def _turn(session: aiohttp.ClientSession, url: str) -> float:
    async def ask(number: int) -> int:
        body = {
            "model": "tiny",
            "prompt": f"{number}:",
            "temperature": 0,
            "min_tokens": TOKENS,
            "max_tokens": TOKENS,
            "structured_outputs": {"regex": "[a-z ]+"},
        }
        headers = {"traceparent": f"00-{secrets.token_hex(16)}-{secrets.token_hex(8)}-01"}
        async with session.post(f"{url}/v1/completions", json=body, headers=headers) as answer:
            answer.raise_for_status()
            return int((await answer.json())["usage"]["completion_tokens"])

    began = time.perf_counter()
    tokens = sum(await asyncio.gather(*map(ask, range(REQUESTS))))
    return tokens / (time.perf_counter() - began)


def _report(speeds: dict[str, list[float]]) -> int:
    ratio = statistics.paired_ratio(speeds["on"], speeds["off"])
    print(f"\n{os.cpu_count()} cores, {len(speeds['off'])} rounds of {REQUESTS} guided requests at once,")
    print(f"{TOKENS} tokens each; {Sink.taken / 1e6:.1f} MB of traces taken by the collector\n")
    for turn, found in speeds.items():
        print(f"traces {turn}: {statistics.mean(found).value:.0f} tok/s")
    print(f"on over off: {ratio.value:.4f} ({ratio.low:.4f} to {ratio.high:.4f})")
    print(f"loss at most {1 - ratio.low:.2%}, bar {MOST_LOSS:.0%}")
    return int(1 - ratio.low > MOST_LOSS)


if __name__ == "__main__":
    sys.exit(main())
