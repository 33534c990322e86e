"""What clients are told when a rank or the engine core has died: vLLM's own ways of telling its handlers."""

import asyncio
from pathlib import Path
from types import SimpleNamespace

import pytest

from guided_contract import wire
from guided_engine.admission import headers
from guided_engine.admission.exchange import HttpExchange, current
from guided_engine.admission.gate import Admitted, Gate
from guided_engine.admission.service_client import GrammarClient
from guided_engine.compat import api, api_ends
from guided_engine.telemetry import Telemetry
from support.engine import pod_config

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # vLLM's own imports warn


def exchange() -> HttpExchange:
    return HttpExchange(headers.begin([], 1), "/v1/completions")


def told(exchange: HttpExchange) -> tuple[str, int, float | None]:
    assert exchange.failure is not None
    error = exchange.failure
    return error.code.value, error.code.http_status, error.retry_after_s


async def test_whoever_waits_is_told_to_come_again() -> None:
    from vllm.sampling_params import RequestOutputKind
    from vllm.v1.engine.exceptions import EngineDeadError
    from vllm.v1.engine.output_processor import OutputProcessor, RequestOutputCollector

    states = {
        name: SimpleNamespace(queue=RequestOutputCollector(RequestOutputKind.DELTA, name)) for name in "ab"
    }
    waits = exchange()
    api._hold(states["a"].queue, Admitted(waits))
    api_ends._dying(OutputProcessor.propagate_error)(
        SimpleNamespace(request_states=states), EngineDeadError()
    )
    assert told(waits) == ("engine_dead", 503, 1.0)
    for state in states.values():  # vLLM's own way of ending what waits, and itself, stays
        with pytest.raises(EngineDeadError):
            await state.queue.get()


async def test_whoever_comes_meanwhile_is_told_to_come_again(monkeypatch: pytest.MonkeyPatch) -> None:
    from vllm.sampling_params import SamplingParams
    from vllm.v1.engine.async_llm import AsyncLLM
    from vllm.v1.engine.exceptions import EngineDeadError

    class Engine:
        """Stands for AsyncLLM, which needs an engine core."""

        errored = True
        add_request = api._admitting(AsyncLLM.add_request)

    pod = pod_config(Path("/nowhere"))
    client = GrammarClient(pod.service_socket, lambda: wire.Hello(role="api", pid=1, boot=""))
    gate = Gate(pod, client, Telemetry(pod.telemetry_socket))
    monkeypatch.setattr(api, "process_gate", lambda: gate)
    comes = exchange()
    current.set(comes)
    try:
        with pytest.raises(EngineDeadError):
            await Engine().add_request("1", "x", SamplingParams())
    finally:
        current.set(None)
    assert told(comes) == ("engine_dead", 503, 1.0)


async def test_whoever_waits_while_the_server_leaves_is_told_to_come_again() -> None:
    """vLLM ends its engine, and reads from it no more, before it waits for its connections."""
    from vllm.sampling_params import RequestOutputKind
    from vllm.v1.engine.async_llm import AsyncLLM
    from vllm.v1.engine.exceptions import EngineDeadError
    from vllm.v1.engine.output_processor import OutputProcessor, RequestOutputCollector

    state = SimpleNamespace(queue=RequestOutputCollector(RequestOutputKind.DELTA, "a"))
    api._hold(state.queue, Admitted(waits := exchange()))
    told_of = api_ends._dying(OutputProcessor.propagate_error)
    outputs = SimpleNamespace(request_states={"a": state})
    outputs.propagate_error = lambda error: told_of(outputs, error)
    llm = SimpleNamespace(output_handler=asyncio.create_task(asyncio.sleep(60)), output_processor=outputs)
    await asyncio.to_thread(api_ends._leaving(AsyncLLM.shutdown), llm)
    with pytest.raises(EngineDeadError):
        await asyncio.wait_for(state.queue.get(), 10)
    assert told(waits) == ("engine_dead", 503, 1.0)
