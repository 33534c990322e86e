"""What clients are told when a rank or the engine core has died: vLLM's own ways of telling its handlers."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from guided_engine.admission import headers
from guided_engine.admission.exchange import HttpExchange
from guided_engine.admission.gate import Admitted
from guided_engine.compat import api, api_ends
from support.admitting import asking, gate_of
from support.engine import pod_config

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # vLLM's own imports warn


def waiting(name: str) -> tuple[HttpExchange, Any]:
    """Return a request that waits, and what vLLM knows of it."""
    from vllm.sampling_params import RequestOutputKind
    from vllm.v1.engine.output_processor import RequestOutputCollector

    queue = RequestOutputCollector(RequestOutputKind.DELTA, name)
    exchange = HttpExchange(headers.begin([], 1), "/v1/completions")
    api._hold(queue, Admitted(exchange))
    return exchange, SimpleNamespace(queue=queue)


def assert_told_to_come_again(exchange: HttpExchange) -> None:
    assert exchange.failure is not None
    error = exchange.failure
    assert (error.code.value, error.code.http_status, error.retry_after_s) == ("engine_dead", 503, 1.0)


async def test_whoever_comes_meanwhile_is_told_to_come_again(monkeypatch: pytest.MonkeyPatch) -> None:
    from vllm.sampling_params import SamplingParams
    from vllm.v1.engine.async_llm import AsyncLLM
    from vllm.v1.engine.exceptions import EngineDeadError

    class Engine:
        """Stands for AsyncLLM, which needs an engine core."""

        errored = True
        add_request = api._admitting(AsyncLLM.add_request)

    gate = gate_of(pod_config(Path("/nowhere")))
    monkeypatch.setattr(api, "process_gate", lambda: gate)
    with asking("/v1/completions") as comes, pytest.raises(EngineDeadError):
        await Engine().add_request("1", "x", SamplingParams())
    assert_told_to_come_again(comes)


async def test_whoever_waits_while_the_engine_dies_or_the_server_leaves_is_told_to_come_again() -> None:
    """vLLM ends its engine, and reads from it no more, before it waits for its connections."""
    from vllm.v1.engine.async_llm import AsyncLLM
    from vllm.v1.engine.exceptions import EngineDeadError
    from vllm.v1.engine.output_processor import OutputProcessor

    requests = {name: waiting(name) for name in "ab"}
    tell = api_ends._dying(OutputProcessor.propagate_error)
    outputs = SimpleNamespace(request_states={name: state for name, (_, state) in requests.items()})
    outputs.propagate_error = lambda error: tell(outputs, error)
    llm = SimpleNamespace(output_handler=asyncio.create_task(asyncio.sleep(60)), output_processor=outputs)
    await asyncio.to_thread(api_ends._leaving(AsyncLLM.shutdown), llm)
    for exchange, state in requests.values():
        with pytest.raises(EngineDeadError):  # vLLM's own way of ending what waits, and itself, stays
            await asyncio.wait_for(state.queue.get(), 10)
        assert_told_to_come_again(exchange)
