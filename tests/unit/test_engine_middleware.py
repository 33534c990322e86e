"""The middleware between an application and a server, both written by the test."""

import contextlib
import json
import socket
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HEADER_VALUE_RE

from guided_contract import records, wire
from guided_contract.config import PodConfig, TelemetryConfig
from guided_contract.errors import ErrorCode, GuidedError
from guided_engine import ledger
from guided_engine.admission import headers, middleware
from guided_engine.admission.exchange import current
from guided_engine.admission.gate import Gate
from guided_engine.admission.service_client import GrammarClient
from guided_engine.telemetry import Telemetry

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
STATE = "ot=th:8,vendor=x"


class Served:
    """The middleware around an application that the test writes, and what it sent."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        pod = PodConfig(
            name="t",
            model="m",
            tokenizer="m",
            served_name="m",
            run_dir=str(folder),
            telemetry=TelemetryConfig(endpoint="http://collector:4318"),
        )
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(pod.telemetry_socket))
        self.socket.settimeout(5)
        client = GrammarClient(pod.service_socket, lambda: wire.Hello(role="api", pid=1, boot="b"))
        self.telemetry = Telemetry(pod.telemetry_socket)
        gate = Gate(pod, client, self.telemetry)
        monkeypatch.setattr(middleware, "process_gate", lambda: gate)
        monkeypatch.setattr(ledger, "applied", lambda: [wire.Patch(name="admission", state="Applied")])
        self.sent: list[Any] = []

    async def run(
        self,
        app: ASGIApp,
        path: str = "/v1/completions",
        body: bytes | None = None,
        headers: tuple[tuple[bytes, bytes], ...] = (),
    ) -> None:
        scope = {
            "app": None,
            "type": "http",
            "method": "POST",
            "path": path,
            "headers": [(b"traceparent", PARENT.encode()), (b"tracestate", STATE.encode()), *headers],
        }
        incoming = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> Any:
            return incoming.pop(0)

        async def send(message: Any) -> None:
            self.sent.append(message)

        try:
            await middleware.AdmissionMiddleware(app)(scope, receive, send)
        finally:
            current.set(None)

    @property
    def record(self) -> records.HttpRequest:
        record = records.decode(self.socket.recv(1 << 16))
        assert isinstance(record, records.HttpRequest)
        return record

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.sent)


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    with tempfile.TemporaryDirectory(prefix="gm-") as folder:  # short: a socket's path has at most 107 bytes
        served = Served(Path(folder), monkeypatch)
        with contextlib.closing(served.socket), contextlib.closing(served.telemetry):
            yield served


STREAM = {
    "type": "http.response.start",
    "status": 200,
    "headers": [(b"content-type", b"text/event-stream; x")],
}


def chunk(body: bytes, *, more: bool = True) -> dict[str, Any]:
    return {"type": "http.response.body", "body": body, "more_body": more}


async def reads_and_answers(_scope: Any, receive: Any, send: Any) -> None:
    await receive()
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send(chunk(b"", more=False))


def fails(code: ErrorCode = ErrorCode.GRAMMAR_INVALID, **fields: Any) -> Callable[[], None]:
    def fail() -> None:
        exchange = current.get()
        assert exchange is not None
        exchange.fail(GuidedError(code, "no", **fields))

    return fail


class TestMiddleware:
    async def test_start_is_kept_until_the_verdict(self, served: Served) -> None:
        async def app(_scope: Any, _receive: Any, send: Any) -> None:
            await send(STREAM)
            await send(chunk(b"created"))
            assert served.sent == []
            exchange = current.get()
            assert exchange is not None
            exchange.decided = True
            await send(chunk(b"token"))
            assert [message.get("body") for message in served.sent] == [None, b"created", b"token"]
            await send(chunk(b"", more=False))

        await served.run(app)
        record = served.record
        assert (record.status, record.stream, record.error_code) == (200, True, None)
        assert record.trace_id == "0af7651916cd43dd8448eb211c80319c"
        assert record.parent_span_id == "b7ad6b7169203331"
        assert record.end_ns >= record.start_ns

    @pytest.mark.parametrize(
        ("body", "model"),
        [
            (b'{"model": "tiny"}', "tiny"),
            (b'{"model": 7}', None),
            (b'{"model": "\\ud800"}', None),
            (b'{"model": "%b"}' % (b"m" * 300), None),
        ],
    )
    async def test_the_record_says_what_the_client_asked_for(
        self, served: Served, body: bytes, model: str | None
    ) -> None:
        await served.run(reads_and_answers, body=body)
        record = served.record
        assert record.model == model
        assert (record.flags, record.tracestate) == (1, STATE)

    @pytest.mark.parametrize(
        "paths", [["$.not"], ["$['é\r\nx: y']", *(f"$.properties.a{n}" for n in range(99))]]
    )
    async def test_a_response_says_what_is_not_enforced(self, served: Served, paths: list[str]) -> None:
        async def app(_scope: Any, _receive: Any, send: Any) -> None:
            await send(STREAM)
            exchange = current.get()
            assert exchange is not None
            exchange.unenforced += paths
            exchange.decided = True
            await send(chunk(b"", more=False))

        await served.run(app)
        told = dict(served.sent[0]["headers"])[b"x-guidedmodel-unenforced"]
        assert told.isascii()
        assert b"\r" not in told
        assert len(told) <= 1024
        *known, last = json.loads(told)
        assert [*known, last] == paths or (known == paths[: len(known)] and last == "...")

    async def test_an_exception_that_is_not_ours_is_left_to_vllm(self, served: Served) -> None:
        async def app(_scope: Any, _receive: Any, _send: Any) -> None:
            raise RuntimeError("upstream")

        with pytest.raises(RuntimeError, match="upstream"):
            await served.run(app)
        assert served.record.status == 500

    async def test_vllms_own_error_goes_out_as_it_came(self, served: Served) -> None:
        text = b'{"error": {"message": "no such model", "code": 404}}'

        async def app(_scope: Any, _receive: Any, send: Any) -> None:
            headers = [(b"content-type", b"application/json")]
            await send({"type": "http.response.start", "status": 404, "headers": headers})
            await send(chunk(text[:9]))
            await send(chunk(text[9:], more=False))

        await served.run(app, headers=((b"x-request-id", b"mine"),))
        assert served.body == text
        headers = dict(served.sent[0]["headers"])
        assert (headers[b"x-request-id"], served.record.status) == (b"mine", 404)
        assert headers[b"traceresponse"]

    @pytest.mark.parametrize(
        ("path", "event"),
        [
            ("/v1/completions", b'data: {"error": {"message": "no", "type": "invalid_request_error"'),
            (
                "/v1/responses",
                b'event: error\ndata: {"message": "no", "type": "error", "param": null, "code": "seq',
            ),
        ],
    )
    async def test_failure_in_a_stream_is_its_last_event(
        self, served: Served, path: str, event: bytes
    ) -> None:
        async def app(_scope: Any, _receive: Any, send: Any) -> None:
            exchange = current.get()
            assert exchange is not None
            exchange.decided = True
            await send(STREAM)
            await send(chunk(b"data: token\n\n"))
            fails(ErrorCode.SEQUENCE_DEAD_END)()
            await send(chunk(b"data: upstream's error\n\n"))
            await send(chunk(b"", more=False))

        await served.run(app, path)
        assert served.sent[0]["status"] == 200
        assert served.body.startswith(b"data: token\n\n" + event)
        assert b"upstream" not in served.body
        assert not served.sent[-1].get("more_body")
        assert served.record.error_code == "sequence_dead_end"

    async def test_other_routes_are_left_alone(self, served: Served) -> None:
        async def app(scope: Any, _receive: Any, send: Any) -> None:
            assert dict(scope["headers"])[b"traceparent"] == PARENT.encode()
            assert current.get() is None
            await send(STREAM)
            assert served.sent == [STREAM]

        await served.run(app, "/v1/models")


async def test_vllms_own_path_is_not_kept_back(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """With placement Scheduler nobody gives a verdict, so nothing may wait for one; the span stays."""
    monkeypatch.setattr(ledger, "applied", lambda: [wire.Patch(name="admission", state="Skipped")])

    async def app(_scope: Any, _receive: Any, send: Any) -> None:
        await send(STREAM)
        assert [message["type"] for message in served.sent] == ["http.response.start"]
        await send(chunk(b"", more=False))

    await served.run(app)
    assert served.record.status == 200


ASKED = b'{"guided_json": {"type": "object"}}'


@pytest.mark.parametrize(
    ("state", "path"),
    [
        ("Applied", "/v1/completions"),
        ("Applied", "/v1/completions\n"),  # Starlette's `$` matches before a line's end, too
        ("Skipped", "/v1/completions"),  # placement Scheduler
    ],
)
async def test_a_constraint_in_other_words_stops_the_application(
    served: Served, monkeypatch: pytest.MonkeyPatch, state: str, path: str
) -> None:
    """Before it reads the body. Whatever it answers is not what is sent."""
    monkeypatch.setattr(ledger, "applied", lambda: [wire.Patch(name="admission", state=state)])
    went_on = []

    async def app(_scope: Any, receive: Any, send: Any) -> None:
        try:
            await receive()
            went_on.append(True)
        except Exception:  # noqa: BLE001 - as FastAPI does
            await send({"type": "http.response.start", "status": 400, "headers": []})
            await send(chunk(b"There was an error parsing the body", more=False))

    await served.run(app, path, body=ASKED)
    assert not went_on
    error = json.loads(served.body)["error"]
    assert (error["code"], error["param"]) == ("request_unknown_constraint", "guided_json")
    record = served.record
    assert (record.status, record.error_code) == (400, "request_unknown_constraint")


async def test_a_body_that_nobody_reads_is_not_looked_at(served: Served) -> None:
    """As of a client without a key: he is told so, and nothing else."""

    async def app(_scope: Any, _receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 401, "headers": []})
        await send(chunk(b"{}", more=False))

    await served.run(app, body=ASKED)
    assert served.sent[0]["status"] == 401
    assert served.record.error_code is None


class TestIdentifiers:
    """What a developer tells an SRE: the same names in headers and body, of errors and of answers."""

    @pytest.mark.parametrize("route", ["/v1/completions", "/v1/messages"])
    async def test_of_an_error(self, served: Served, route: str) -> None:
        async def app(_scope: Any, receive: Any, _send: Any) -> None:
            await receive()

        await served.run(app, route, body=ASKED, headers=((b"X-Request-Id", b"mine-1"),))
        headers, whole = dict(served.sent[0]["headers"]), json.loads(served.body)
        record = served.record
        assert headers[b"x-request-id"] == b"mine-1"
        assert headers[b"traceresponse"].decode() == f"00-{record.trace_id}-{record.span_id}-01"
        assert (whole["error"]["request_id"], whole["error"]["trace_id"]) == ("mine-1", record.trace_id)
        # Anthropic's library looks for these.
        of_anthropic = (headers.get(b"request-id"), whole.get("request_id"))
        assert of_anthropic == ((b"mine-1", "mine-1") if route == "/v1/messages" else (None, None))

    async def test_of_an_answer_it_is_what_vllm_calls_the_request(self, served: Served) -> None:
        async def app(_scope: Any, _receive: Any, send: Any) -> None:
            headers.called("cmpl-7")
            theirs = [(b"x-request-id", b"of --enable-request-id-headers"), (b"content-type", b"x")]
            await send({"type": "http.response.start", "status": 200, "headers": theirs})
            await send(chunk(b"", more=False))

        await served.run(app)
        names = [value for name, value in served.sent[0]["headers"] if name == b"x-request-id"]
        assert names == [b"cmpl-7"]

    @pytest.mark.parametrize("name", ["a\nb", "\ud800", "x" * 300])
    async def test_what_no_header_can_hold_is_not_told(self, served: Served, name: str) -> None:
        """A body's request_id; the server drops a connection over such a header."""

        async def app(_scope: Any, _receive: Any, send: Any) -> None:
            headers.called(f"cmpl-{name}")
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send(chunk(b"", more=False))

        await served.run(app)
        told = dict(served.sent[0]["headers"])[b"x-request-id"]
        assert told
        assert not HEADER_VALUE_RE.search(told)
        assert name.encode(errors="replace") not in told

    @pytest.mark.parametrize("sent", ["x" * 200, "caf\u00e9"])
    def test_an_id_that_cannot_be_told_back_is_not_taken(self, sent: str) -> None:
        assert not headers.given([(b"x-request-id", sent.encode("latin-1"))])
