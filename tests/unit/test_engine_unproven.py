"""A lease on a grammar that is not proven yet: its verdict, and what comes between."""

import asyncio

import pytest

from guided_contract import wire
from guided_contract.errors import ErrorCode, GuidedError
from guided_engine.admission.constraints import Constraint
from guided_engine.admission.service_client import GrammarClient
from support.fake_service import FakeService


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
