"""The sidecar's own processes with a real collector: grammars' spans, what is sent at TERM, and health."""

import asyncio
import socket
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import aiohttp
import pytest
from aiohttp.test_utils import unused_port
from devtools import sidecar_names as names

from guided_contract import records, status
from guided_contract.config import PodConfig, TelemetryConfig
from guided_contract.records import HttpRequest
from guided_contract.wire import Prepared, Refused
from support import grammars
from support.collectors import GrpcCollector, Kept, eventually
from support.engine import pod_config
from support.sidecar import Api, Rank, Sidecar, kill

TRACE = "0af7651916cd43dd8448eb211c80319c"
ROOT = "b7ad6b7169203331"
PARENT = f"00-{TRACE}-{ROOT}-01"
JOINED = ("aa", "bb")  # traces of two requests for one grammar
WARM_S = 120  # the template imports the grammar libraries


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="gm-") as name:  # short: a socket's path is at most 107 bytes
        yield Path(name)


@pytest.fixture
async def collector() -> AsyncIterator[GrpcCollector]:
    """One over gRPC, whose threads a fork of the process could not take along."""
    made = GrpcCollector(unused_port())
    await made.start()
    yield made
    await made.stop()


async def get(pod: PodConfig, path: str) -> tuple[int, str]:
    url = f"http://127.0.0.1:{pod.ports.sidecar}{path}"
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        return answer.status, await answer.text()


async def warm(pod: PodConfig) -> None:
    """Wait until a worker can compile: grammars are refused before."""
    async with asyncio.timeout(WARM_S):
        while status.decode((await get(pod, "/status"))[1].encode()).grammar_workers.ready == 0:  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.1)


async def test_a_request_is_one_trace_also_when_a_worker_dies_and_at_the_end(
    folder: Path, collector: GrpcCollector
) -> None:
    pod = pod_config(folder, telemetry=TelemetryConfig(endpoint=collector.endpoint, protocol="GRPC"))
    sidecar = await asyncio.to_thread(Sidecar.start, pod)
    try:
        async with Rank.connected(pod), Api.connected(pod) as api:
            await warm(pod)
            assert await get(pod, "/startupz") == (200, "ok\n")
            unready = "PluginInactive: the engine's launcher is not connected to the sidecar\n"
            assert await get(pod, "/readyz") == (503, unready)
            assert isinstance(await api.prepare("choice", '["a"]'), Prepared)
            await eventually(lambda: collector.kept.spans)  # the exporter's connection is open
            before = sidecar.workers()
            for worker in before:
                kill(worker)
            # Workers are forked anew beside an open connection; one dead worker alone would be tried again.
            await eventually(lambda: len(sidecar.workers() - before) >= len(before))
            assert isinstance(await api.prepare("regex", "[ab]{3}", traceparent=PARENT), Prepared)
            assert isinstance(await api.prepare("json", '{"type": "no"}', traceparent=PARENT), Refused)
            slow = grammars.slow_regex(100)  # the second is there before it is compiled
            shared = [
                api.begin("regex", slow, traceparent=f"00-{end * 16}-{ROOT}-01", backend="xgrammar")
                for end in JOINED
            ]
            answers = await asyncio.gather(*(answer for _, answer in shared))
            assert {type(answer) for answer in answers} == {Prepared}
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as client:
                client.sendto(records.encode(_root()), str(pod.telemetry_socket))
    finally:
        await asyncio.to_thread(sidecar.stop)

    mine = [span for span in collector.kept.spans if span.trace_id == TRACE]
    assert sorted(span.name for span in mine) == [
        *("POST /v1/completions", "grammar.compile", "grammar.compile", "grammar.load"),
        *("grammar.prepare", "grammar.prepare", "grammar.proof"),
    ]
    prepares = [span for span in mine if span.name == "grammar.prepare"]
    assert {span.parent_span_id for span in prepares} == {ROOT}
    assert {span.attributes.get("error.type") for span in prepares} == {None, "grammar_invalid"}
    below = {span.parent_span_id for span in mine if span.name in {"grammar.compile", "grammar.load"}}
    assert below == {span.span_id for span in prepares}
    [proof] = [span for span in mine if span.name == "grammar.proof"]
    [proven] = [span for span in mine if span.span_id == proof.parent_span_id]
    assert proven.name == "grammar.compile"
    assert proven.start_ns <= proof.start_ns < proof.end_ns <= proven.end_ns
    _check_joined(collector.kept)
    _check_documented(collector.kept)


def _check_joined(kept: Kept) -> None:
    """Two requests wanted one grammar at once: one compile, in the first's trace, which the other links."""
    first, second = ([span for span in kept.spans if span.trace_id == end * 16] for end in JOINED)
    [compiled] = [span for span in first if span.name == "grammar.compile"]
    [joined] = [span for span in second if span.name == "grammar.prepare"]
    assert not [span for span in second if span.name == "grammar.compile"]
    assert joined.attributes["guidedmodel.grammar.cache"] == "joined"
    assert joined.links == [(compiled.trace_id, compiled.span_id)]


def _check_documented(kept: Kept) -> None:
    """What the real sidecar emits is what docs/telemetry.md says of it, no more and no less."""
    documented = {entry.name: set(entry.attributes) for entry in names.spans()}
    for name in ("grammar.prepare", "grammar.compile", "grammar.proof", "grammar.load"):
        emitted = set[str]().union(*(span.attributes for span in kept.named(name))) - {"error.type"}
        if name == "grammar.prepare":
            emitted.add(
                "guidedmodel.grammar.unenforced"
            )  # where Allow is asked for: test_grammar_observed.py
        assert emitted == documented[name]


def _root() -> HttpRequest:
    return HttpRequest(
        trace_id=TRACE, span_id=ROOT, start_ns=1, end_ns=2, route="/v1/completions", status=200
    )
