"""What a real sidecar tells a collector: each request's spans, lost workers, and nothing of a schema."""

import asyncio
import contextlib
import json
import socket
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from aiohttp.test_utils import unused_port
from devtools import sidecar_names as names

from guided_contract import records
from guided_contract.config import (
    CompileConfig,
    GuidedDecodingConfig,
    LogitsProcessorConfig,
    PodConfig,
    TelemetryConfig,
)
from guided_contract.records import Digest, Digests, ProcessorFailure
from guided_contract.wire import Kind, Load, Loaded, Prepared
from support import grammars
from support.collectors import GrpcCollector, Kept, eventually
from support.engine import pod_config
from support.monitored import decode, request
from support.sidecar import Api, Rank, Sidecar, busy_worker, kill, loaded, until

CANARY = "tweetzq7"  # no key, id or name of ours holds it
TRACE = "0af7651916cd43dd8448eb211c80319c"
ROOT = "b7ad6b7169203331"
PARENT = f"00-{TRACE}-{ROOT}-01"
JOINED = ("aa", "bb")  # traces of two requests for one grammar
WARM_S = 120
DEADLINE_S = 6.0

# Texts that are compiled, refused by us, refused by a library, found to be stuck, and never compiled in time.
PLANTED: dict[str, tuple[Kind, str, str]] = {
    "compiled": ("json", json.dumps({"properties": {CANARY: {"enum": [CANARY]}}, "required": [CANARY]}), ""),
    "no schema": ("json", json.dumps({"properties": {CANARY: {"type": CANARY}}}), "grammar_invalid"),
    "not JSON": ("json", f'{{"{CANARY}"', "grammar_invalid"),
    "not enforced": (
        "json",
        json.dumps({"uniqueItems": True, "items": {"not": {"pattern": CANARY}}}),
        "grammar_unsupported",
    ),
    "no regex": ("regex", f"({CANARY}", "grammar_invalid"),
    "no grammar": ("grammar", f"root ::= {CANARY}", "grammar_invalid"),
    "stuck": ("regex", f"{CANARY}[^\\s\\S]", "grammar_dead_end"),
    "endless": ("regex", f"{CANARY}{grammars.endless_regex(1)}", "grammar_compile_timeout"),
}


@dataclass(frozen=True, slots=True)
class Told:
    """All that one sidecar said: spans, the bytes of their export, its pages and its log."""

    kept: Kept
    codes: dict[str, str]
    metrics: str
    page: str
    log: str


@pytest.fixture(scope="module")
def told() -> Iterator[Told]:
    with tempfile.TemporaryDirectory(prefix="gm-") as folder:  # short: a socket's path is at most 107 bytes
        yield asyncio.run(_tell(Path(folder)))


async def _tell(folder: Path) -> Told:
    collector = GrpcCollector(unused_port())  # with threads, which a fork could not take along
    await collector.start()
    pod = pod_config(
        folder,
        telemetry=TelemetryConfig(endpoint=collector.endpoint, protocol="GRPC"),
        tensor_parallel=2,
        guided_decoding=GuidedDecodingConfig(
            backend="XGrammar",
            compile=CompileConfig(timeout_s=DEADLINE_S, workers=2),
        ),
        logits_processors=[LogitsProcessorConfig(name="ban", factory="acme.words:Ban")],
    )
    cannot_load = asyncio.Event()

    def answer(load: Load) -> Loaded:
        return loaded(load, error="no such file" if cannot_load.is_set() else "")

    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(collector.stop)
        sidecar = await asyncio.to_thread(Sidecar.start, pod)  # which sends to the collector in this process
        stack.push_async_callback(asyncio.to_thread, sidecar.stop)
        async with Rank.connected(pod, 0, answer=answer), Rank.connected(pod, 1), Api.connected(pod) as api:
            await until(lambda: sidecar.page().grammar_workers.ready, WARM_S)
            codes = {name: await _code(api, name, kind, text) for name, (kind, text, _) in PLANTED.items()}
            codes["crashed"] = await _crash(api, sidecar)
            cannot_load.set()
            codes["not loaded"] = await _code(api, "", "choice", json.dumps([CANARY, "unloadable"]))
            cannot_load.clear()
            await _join(api)
        _send(pod)
        await eventually(lambda: collector.kept.named("guided.decode"))
        metrics, page = sidecar.text("/metrics"), sidecar.text("/status")
    return Told(collector.kept, codes, metrics, page, sidecar.log())


async def _code(api: Api, name: str, kind: Kind, text: str) -> str:
    backend = "xgrammar" if name == "endless" else None
    answer = await api.prepare(kind, text, traceparent=PARENT, backend=backend)
    return "" if isinstance(answer, Prepared) else answer.code


async def _crash(api: Api, sidecar: Sidecar) -> str:
    """Kill the worker of one compile twice."""
    _, answer = api.begin(
        "regex", f"{CANARY}{grammars.endless_regex(2)}", backend="xgrammar", traceparent=PARENT
    )
    for _ in range(2):
        kill(await busy_worker(sidecar))
    return getattr(await answer, "code", "")


async def _join(api: Api) -> None:
    """Have two requests want one grammar at once: the second is there before it is compiled."""
    slow = grammars.slow_regex(100)
    parents = [f"00-{end * 16}-{ROOT}-01" for end in JOINED]
    asked = [api.begin("regex", slow, traceparent=parent, backend="xgrammar")[1] for parent in parents]
    assert {type(answer) for answer in await asyncio.gather(*asked)} == {Prepared}


def _send(pod: PodConfig) -> None:
    """Send what an API server and two ranks say of a request about which they disagreed."""
    code = "sequence_processor_failed"
    sent: list[records.AnyRecord] = [request(503, route="/v1/x", kind=None)]
    for rank in range(2):
        sent.append(Digests(rank=rank, digests=[Digest("cmpl-7", 0, 1, rank)]))
        sent.append(decode(rank=rank, traceparent=PARENT))
        sent.append(ProcessorFailure(rank=rank, processors=["ban"], code=code))
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as client:
        for record in sent:
            client.sendto(records.encode(record), str(pod.telemetry_socket))


def test_every_planted_text_met_its_fate(told: Told) -> None:
    expected = {name: code for name, (_, _, code) in PLANTED.items()}
    assert told.codes == expected | {
        "crashed": "grammar_compile_crashed",
        "not loaded": "grammar_load_failed",
    }


def test_no_planted_text_is_in_what_leaves(told: Told) -> None:
    every = {entry.name for entry in names.spans()} - {"{method} {route}", "llm_request"} | {"POST /v1/x"}
    assert {span.name for span in told.kept.spans} == every
    exported = b"".join(told.kept.bodies)
    assert len(exported) > 5000
    assert CANARY.encode() not in exported
    assert CANARY not in told.metrics
    assert CANARY not in told.page
    assert CANARY not in told.log


def test_spans_of_a_request_are_below_it_in_its_trace(told: Told) -> None:
    mine = [span for span in told.kept.spans if span.trace_id == TRACE]
    spans = {span.span_id: span for span in mine}
    above = {
        "POST /v1/x": {""},
        "grammar.prepare": {"POST /v1/x"},
        "grammar.compile": {"grammar.prepare"},
        "grammar.load": {"grammar.prepare"},
        "grammar.proof": {"grammar.compile"},
        "guided.decode": {"POST /v1/x"},
    }
    for name, parents in above.items():
        found = [span for span in mine if span.name == name]
        assert found, name
        assert {spans[one.parent_span_id].name if one.parent_span_id else "" for one in found} == parents
    for proof in (span for span in mine if span.name == "grammar.proof"):
        compiled = spans[proof.parent_span_id]
        assert compiled.start_ns <= proof.start_ns < proof.end_ns <= compiled.end_ns


def test_of_two_that_want_one_grammar_the_second_links_the_compile_of_the_first(told: Told) -> None:
    first, second = ([span for span in told.kept.spans if span.trace_id == end * 16] for end in JOINED)
    [compiled] = [span for span in first if span.name == "grammar.compile"]
    [joined] = [span for span in second if span.name == "grammar.prepare"]
    assert not [span for span in second if span.name == "grammar.compile"]
    assert joined.attributes["guidedmodel.grammar.cache"] == "joined"
    assert joined.links == [(compiled.trace_id, compiled.span_id)]


def test_spans_have_the_attributes_that_the_document_names(told: Told) -> None:
    documented = {entry.name: set(entry.attributes) for entry in names.spans()}
    for name in ("grammar.prepare", "grammar.compile", "grammar.proof", "grammar.load"):
        emitted = set[str]().union(*(span.attributes for span in told.kept.named(name))) - {"error.type"}
        # Where Allow is asked for alone: test_grammar_workers.py.
        assert emitted == documented[name] - {"guidedmodel.grammar.unenforced"}
