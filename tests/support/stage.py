"""A real engine with its launcher, before it a client, behind it a fake grammar service and collectors."""

import contextlib
import secrets
import socket
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from guided_contract import records, wire
from guided_contract.config import LogitsProcessorConfig, TelemetryConfig
from support.collectors import HttpCollector, Received, collecting
from support.engine import Engine, pod_config, wait_until
from support.fake_service import FakeService


def _processors(begun: Path) -> list[LogitsProcessorConfig]:
    """Return those that fail; the ones in streams not before the client has seen them begin."""
    fails, lingers = "support.failing:FailsLater", "support.failing:Lingers"
    once = {"after": 4, "once": str(begun)}
    return [
        LogitsProcessorConfig(name=name, factory=factory, params=params, apply_by_default=False)
        for name, factory, params in (
            ("fails", fails, {"after": 4}),
            ("fails-in-stream", fails, once),
            ("first-fails-in-stream", fails, {"among": 3, **once}),
            ("lingers", lingers, {}),
        )
    ]


@dataclass(slots=True)
class Stage:
    """What admission works with in one engine, for as long as `staged` runs.

    All requests of a test are in one trace, by whose id its records are told from late ones of others.
    """

    engine: Engine
    service: FakeService
    client: httpx.Client
    telemetry: socket.socket
    collector: HttpCollector
    native_calls: Path
    begun: Path
    trace_id: str = ""

    def reset(self) -> None:
        """Forget what earlier tests sent and scripted."""
        self.service.forget()
        self.begun.unlink(missing_ok=True)
        self.trace_id = secrets.token_hex(16)
        self.client.headers["traceparent"] = f"00-{self.trace_id}-{'1' * 16}-01"
        self.telemetry.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                self.telemetry.recv(1 << 16)
        self.telemetry.settimeout(20)

    def failing_stream(self, route: str, body: dict[str, Any]) -> tuple[int, list[str]]:
        """Return status and events of a stream whose processor fails once its first line is here."""
        with self.client.stream("POST", route, json=body) as response:
            lines = []
            for line in response.iter_lines():
                self.begun.touch()
                lines.append(line)
        return response.status_code, [line[6:] for line in lines if line.startswith("data: ")]

    def record(self) -> records.HttpRequest:
        """Return the next HTTP record of this test; ranks' records are passed over."""
        while True:
            record = records.decode(self.datagrams(1)[0])
            if isinstance(record, records.HttpRequest):
                return record

    def datagrams(self, count: int) -> list[bytes]:
        """Return the next records of this test as they were sent."""
        found: list[bytes] = []
        while len(found) < count:
            datagram = self.telemetry.recv(1 << 16)
            if self.trace_id.encode() in datagram:
                found.append(datagram)
        return found

    def released(self) -> list[int]:
        """Return the ids of this test's grammars that were released: others' may be so late."""
        asked = {message.id for message in self.service.received(wire.Prepare)}
        return [message.id for message in self.service.received(wire.Release) if message.id in asked]

    def wait_released(self, number: int) -> None:
        """Wait until a request's grammar is released."""
        self.service.wait_for(wire.Release, lambda message: message.id == number)

    def running(self) -> float:
        """Return how many requests the engine works on, by its own metrics."""
        return self._metrics("vllm:num_requests_running{", "vllm:num_requests_waiting{")

    def steps(self) -> float:
        """Return how many steps the engine has made, by its own metrics."""
        return self._metrics("vllm:iteration_tokens_total_count{")

    def _metrics(self, *names: str) -> float:
        lines = self.client.get("/metrics").text.splitlines()
        return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(names))

    def engine_span(self, trace_id: str, parent: str) -> Received:
        """Return vLLM's own span below a span of ours, waiting for its export."""

        def found() -> list[Received]:
            spans = self.collector.kept.named("llm_request")
            return [span for span in spans if (span.trace_id, span.parent_span_id) == (trace_id, parent)]

        wait_until(found, 30)
        return found()[0]


@contextlib.contextmanager
def staged() -> Iterator[Stage]:
    """Start everything, and stop it."""
    with contextlib.ExitStack() as stack:
        run_dir = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gm-")))
        begun = run_dir / "begun"
        collector = stack.enter_context(collecting())
        pod = pod_config(
            run_dir,
            logits_processors=_processors(begun),
            telemetry=TelemetryConfig(endpoint=collector.endpoint),
        )
        service = stack.enter_context(FakeService(pod.service_socket))
        telemetry = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
        telemetry.bind(str(pod.telemetry_socket))
        native_calls = run_dir / "native-calls"
        engine = Engine.start(
            pod,
            [
                *("--middleware", "support.forbidden.Forbidden", "--enable-scale-out"),
                *("--enable-auto-tool-choice", "--tool-call-parser", "hermes"),
            ],
            {
                "FORBIDDEN_OUT": str(native_calls),
                "OTEL_BSP_SCHEDULE_DELAY": "200",  # milliseconds
            },
        )
        stack.callback(engine.stop)
        engine.wait_started()
        service.wait_for(wire.Hello, lambda hello: hello.role == "rank", 60)
        # On a new machine vLLM compiles its kernel for log probabilities at first use: 31 s were seen.
        client = stack.enter_context(httpx.Client(base_url=engine.url, timeout=180))
        yield Stage(engine, service, client, telemetry, collector, native_calls, begun)


def guided(route: str, schema: dict[str, Any], *, stream: bool = False, **more: Any) -> dict[str, Any]:
    """Return the body of a request that asks for a schema, in the way of its route."""
    body: dict[str, Any] = {"model": "tiny", "stream": stream, "temperature": 0, **more}
    named = {"type": "json_schema", "name": "x", "schema": schema}
    most = more.get("max_tokens", 32)
    if route == "/v1/responses":
        return body | {"input": "x", "text": {"format": named}, "max_output_tokens": 32}
    if route == "/inference/v1/generate":
        sampling = {"max_tokens": most, "temperature": 0, "structured_outputs": {"json": schema}}
        sampling |= {"extra_args": more["vllm_xargs"]} if "vllm_xargs" in more else {}
        return {"model": "tiny", "stream": stream, "token_ids": [5, 6], "sampling_params": sampling}
    body |= {"max_tokens": most, "messages": [{"role": "user", "content": "x"}]}
    if route == "/v1/messages":
        return body | {"output_config": {"format": {"type": "json_schema", "schema": schema}}}
    if route == "/v1/completions":
        del body["messages"]
        body["prompt"] = more.get("prompt", "x")
    return body | {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}}


def completion(*, stream: bool = False, **more: Any) -> dict[str, Any]:
    return {"model": "tiny", "prompt": "x", "stream": stream, "temperature": 0, "max_tokens": 32, **more}


def error_of(response: httpx.Response) -> dict[str, Any]:
    return dict(response.json()["error"])
