"""Admission without vLLM: the trace header, the constraint, the client of the grammar service; proofs."""

import asyncio
from typing import Any

import pytest

from guided_contract import trace_context, wire
from guided_contract.errors import ErrorCode, GuidedError
from guided_engine.admission import headers
from guided_engine.admission.constraints import Constraint, constraint_of
from guided_engine.admission.service_client import GrammarClient
from support.collectors import eventually
from support.engine import structured_outputs
from support.fake_service import FakeService

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class TestTrace:
    @pytest.mark.parametrize("flags", ["00", "01", "03"])
    def test_caller_is_the_parent_and_its_flags_are_kept(self, flags: str) -> None:
        span = headers.begin([(b"Traceparent", f"{PARENT[:-2]}{flags}".encode())], ratio=int(flags) % 2)
        assert span.trace_id == "0af7651916cd43dd8448eb211c80319c"
        assert span.parent_span_id == "b7ad6b7169203331"
        assert span.traceparent.endswith(f"{span.span_id}-{flags}")

    @pytest.mark.parametrize("ratio", [0, 1])
    @pytest.mark.parametrize(
        "sent",
        [
            [],
            [b"nonsense"],
            [b"ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"],
            [b"00-00000000000000000000000000000000-b7ad6b7169203331-01"],
            ["00-é".encode()],
            [PARENT.encode()] * 2,
        ],
    )
    def test_a_broken_header_starts_a_new_trace_and_the_ratio_decides(
        self, sent: list[bytes], ratio: float
    ) -> None:
        span = headers.begin([(b"traceparent", header) for header in sent], ratio=ratio)
        assert span.parent_span_id is None
        assert bool(span.flags & trace_context.SAMPLED) == bool(ratio)


class TestConstraint:
    @pytest.mark.parametrize(
        ("given", "expected"),
        [
            ({"json": '{"a":1}'}, Constraint("json", '{"a":1}')),
            ({"json_object": True}, Constraint("json_object", "")),
            ({"choice": ["a", "b"]}, Constraint("choice", '["a", "b"]')),
            ({"structural_tag": "{}"}, Constraint("structural_tag", "{}")),
        ],
    )
    def test_kinds(self, given: dict[str, Any], expected: Constraint) -> None:
        assert constraint_of(structured_outputs(**given), 1000) == expected

    def test_too_deep(self) -> None:
        schema: dict[str, Any] = {}
        for _ in range(100_000):
            schema = {"not": schema}
        with pytest.raises(GuidedError) as raised:
            constraint_of(structured_outputs(json=schema), 1 << 30)
        assert raised.value.code is ErrorCode.GRAMMAR_TOO_LARGE
        while schema:  # freeing such a value recursively would overflow the C stack
            schema = schema["not"]

    @pytest.mark.parametrize(
        "given", [{}, {"json_object": False}, {"json": {"a": float("nan")}}, {"regex": "\ud800"}]
    )
    def test_invalid(self, given: dict[str, Any]) -> None:
        with pytest.raises(GuidedError) as raised:
            constraint_of(structured_outputs(**given), 1000)
        assert raised.value.code is ErrorCode.GRAMMAR_INVALID


def prepared(asked: wire.Prepare) -> wire.Prepared:
    return wire.Prepared(id=asked.id, key="k", backend="xgrammar")


class TestClient:
    async def test_lease_is_released_once(self, service: FakeService, client: GrammarClient) -> None:
        service.script["a"] = prepared
        lease = await client.prepare(Constraint("regex", "a"), 1, trace_context.parse(PARENT, "a=b"))
        assert (lease.key, lease.backend) == ("k", "xgrammar")
        asked = service.wait_for(wire.Prepare)
        assert (asked.kind, asked.spec, asked.timeout_s) == ("regex", "a", 1)
        assert (asked.traceparent, asked.tracestate) == (PARENT, "a=b")
        lease.release()
        lease.release()
        await asyncio.to_thread(service.wait_for, wire.Release)
        assert [message.id for message in service.received(wire.Release)] == [asked.id]

    async def test_is_told_what_to_end(self, service: FakeService, client: GrammarClient) -> None:
        told: asyncio.Queue[wire.End] = asyncio.Queue()
        client.end = told.put_nowait
        await client.prepare(Constraint("regex", "a"), 5, None)
        end = wire.End(request_id="r", code="ranks_desynchronized")
        service.peers("api")[0].send(end)
        assert await asyncio.wait_for(told.get(), 5) == end

    async def test_cancel(self, service: FakeService, client: GrammarClient) -> None:
        service.script["a"] = lambda _asked: None
        task = asyncio.create_task(client.prepare(Constraint("regex", "a"), 1, None))
        asked = await asyncio.to_thread(service.wait_for, wire.Prepare)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        released = await asyncio.to_thread(service.wait_for, wire.Release)
        assert released.id == asked.id
        # An answer that crossed it changes nothing: the service ends a lease by the same message.
        service.peers("api")[0].send(prepared(asked))
        service.script["b"] = prepared
        await client.prepare(Constraint("regex", "b"), 1, None)
        assert [message.id for message in service.received(wire.Release)] == [asked.id]

    async def test_service_restarts_meanwhile(self, service: FakeService, client: GrammarClient) -> None:
        service.script["a"] = lambda _asked: None
        task = asyncio.create_task(client.prepare(Constraint("regex", "a"), 1, None))
        await asyncio.to_thread(service.wait_for, wire.Prepare)
        service.stop()
        with pytest.raises(GuidedError) as raised:
            await task
        assert (raised.value.code, raised.value.retry_after_s) == ("grammar_service_unavailable", 2)
        service.script["a"] = service.script["b"] = prepared
        service.start()
        old = await client.prepare(Constraint("regex", "a"), 1, None)
        # Its lease belongs to the connection; after another restart the id is not ours any more.
        service.stop()
        service.forget()
        await eventually(lambda: not client._connection.established.is_set())
        service.start()
        await client.prepare(Constraint("regex", "b"), 1, None)
        old.release()
        assert not service.received(wire.Release)


def early(asked: wire.Prepare) -> wire.Prepared:
    return wire.Prepared(id=asked.id, key="k", backend="xgrammar", is_proven=False)


@pytest.mark.parametrize("code", ["", "grammar_dead_end"])
async def test_a_verdict_in_the_same_moment_is_not_lost(
    service: FakeService, client: GrammarClient, code: str
) -> None:
    """Both messages are read before whoever waits for the first goes on."""
    service.script["a"] = lambda _asked: None
    preparing = asyncio.create_task(client.prepare(Constraint("regex", "a"), 5, None))
    asked = await asyncio.to_thread(service.wait_for, wire.Prepare)
    client._received(early(asked))
    refused = wire.Refused(id=asked.id, code=ErrorCode(code or "grammar_invalid"), message="no", path="$")
    client._received(refused if code else wire.Proven(id=asked.id, backend="xgrammar"))
    lease = await preparing
    if code:
        with pytest.raises(GuidedError) as raised:
            await client.prove(lease, 5)
        assert (raised.value.code, raised.value.path) == (code, "$")
    else:
        await client.prove(lease, 5)


async def test_the_service_restarts_before_the_proof(service: FakeService, client: GrammarClient) -> None:
    service.script["a"] = early
    lease = await client.prepare(Constraint("regex", "a"), 5, None)
    proving = asyncio.create_task(client.prove(lease, 5))
    await asyncio.sleep(0)
    service.stop()
    with pytest.raises(GuidedError) as raised:
        await proving
    assert (raised.value.code, raised.value.code.retryable) == (ErrorCode.GRAMMAR_SERVICE_UNAVAILABLE, True)
