"""`make bench-telemetry`: what traces cost a pod's throughput, on real vLLM and this CPU.

Two pods of the tiny model, one rank each, as `guidedmodel run` starts them: one sends no traces, the other
sends all of them to a collector that takes everything. They are asked in turns, in an order that changes,
each with the same guided requests; a round's figures make a pair. A third turn asks the pod with traces for
requests whose caller does not sample: the same process, so that two processes' own difference shows.
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
import yaml
from devtools import deploy, tinymodel
from rankbench import statistics

from guided_operator.api.manifest import read
from guided_operator.cli.local_pod import LocalPod, containers
from guided_operator.cli.local_site import lay_out, local_site

MINUTES: Final = float(os.environ.get("MINUTES", "5"))
MOST_LOSS: Final = 0.02
CONCURRENT: Final = 16
REQUESTS: Final = 32
TOKENS: Final = 96
TURNS: Final = ("off", "on", "on, unsampled")
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
        urls = {
            "off": stack.enter_context(_pod(None)),
            "on": stack.enter_context(_pod(f"http://127.0.0.1:{sink.server_port}")),
        }
        urls["on, unsampled"] = urls["on"]
        speeds = asyncio.run(_measure(urls))
    return _report(speeds)


@contextlib.contextmanager
def _pod(endpoint: str | None) -> Iterator[str]:
    """Start a pod; yield the URL of its API."""
    sample = yaml.safe_load(deploy.SAMPLE.read_text())
    sample["spec"]["parallelism"] = {"tensor": 1}
    del sample["spec"]["telemetry"]
    manifest = read(yaml.safe_dump(sample))
    with tempfile.TemporaryDirectory(prefix="gmb-", ignore_cleanup_errors=True) as folder:
        volumes = {"models": tinymodel.models()}
        site = local_site(Path(folder), volumes=volumes, port=None, otlp_endpoint=endpoint)
        pod = LocalPod(containers(lay_out(manifest, site, {})), Path(folder))
        try:
            pod.start(lambda said: print(f"traces {'on' if endpoint else 'off'}: {said}", flush=True))
            yield f"http://127.0.0.1:{site.ports.engine}"
        finally:
            pod.stop()


async def _measure(urls: dict[str, str]) -> dict[str, list[float]]:
    """Return tokens per second of each turn, round by round."""
    speeds: dict[str, list[float]] = {turn: [] for turn in TURNS}
    timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
    async with aiohttp.ClientSession(timeout=timeout) as session:
        for turn in TURNS * 2:
            await _turn(session, urls[turn], turn)  # warms up
        until = time.monotonic() + 60 * MINUTES
        for order in itertools.cycle(itertools.permutations(TURNS)):
            for turn in order:
                speeds[turn].append(await _turn(session, urls[turn], turn))
            if time.monotonic() > until:
                return speeds
    raise AssertionError("unreachable")


async def _turn(session: aiohttp.ClientSession, url: str, turn: str) -> float:
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
            session.post(f"{url}/v1/completions", json=body, headers={"traceparent": traceparent}) as answer,
        ):
            answer.raise_for_status()
            return int((await answer.json())["usage"]["completion_tokens"])

    began = time.perf_counter()
    tokens = sum(await asyncio.gather(*map(ask, range(REQUESTS))))
    return tokens / (time.perf_counter() - began)


def _report(speeds: dict[str, list[float]]) -> int:
    rounds = len(speeds["off"])
    print(f"\n{os.cpu_count()} cores, {rounds} rounds of {REQUESTS} guided requests, {CONCURRENT} at once,")
    print(f"{TOKENS} tokens each; {Sink.taken / 1e6:.1f} MB of traces taken by the collector\n")
    print("| | tok/s | of | ratio (95 %) | loss at most |")
    print("| --- | --- | --- | --- | --- |")
    print(f"| traces off | {statistics.mean(speeds['off']).value:.0f} | | | |")
    bounds = {}
    for turn, base in (("on", "off"), ("on", "on, unsampled")):
        ratio = statistics.paired_ratio(speeds[turn], speeds[base])
        bounds[base] = 1 - ratio.low
        print(
            f"| traces on | {statistics.mean(speeds[turn]).value:.0f} | {base} | {ratio.value:.4f} "
            f"({ratio.low:.4f} to {ratio.high:.4f}) | {1 - ratio.low:.2%} |"
        )
    return int(bounds["off"] > MOST_LOSS)


if __name__ == "__main__":
    sys.exit(main())
