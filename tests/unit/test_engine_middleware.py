"""The middleware between an application and a server, both written by the test."""

import contextlib
import json
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HEADER_VALUE_RE

from guided_contract import records, wire
from guided_contract.config import TelemetryConfig
from guided_engine import ledger
from guided_engine.admission import headers as trace_headers
from guided_engine.admission import middleware
from guided_engine.admission.exchange import HttpExchange, current
from support.admitting import gate_of
from support.engine import pod_config

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
STATE = "ot=th:8,vendor=x"


class Served:
    """The middleware around an application that the test writes, and what it sent."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        pod = pod_config(folder, "m", telemetry=TelemetryConfig(endpoint="http://collector:4318"))
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(pod.telemetry_socket))
        self.socket.settimeout(5)
        gate = gate_of(pod)
        self.telemetry = gate.telemetry
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
    def headers(self) -> dict[bytes, bytes]:
        return dict(self.sent[0]["headers"])

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
ASKED = b'{"guided_json": {"type": "object"}}'


def chunk(body: bytes, *, more: bool = True) -> dict[str, Any]:
    return {"type": "http.response.body", "body": body, "more_body": more}


def exchange() -> HttpExchange:
    found = current.get()
    assert found is not None
    return found


def answers(
    status: int = 200, body: bytes = b"{}", *, reads: bool = False, names: str = "", **headers: bytes
) -> ASGIApp:
    """Return an application that reads the body or not, names the request, and answers."""

    async def app(_scope: Any, receive: Any, send: Any) -> None:
        if reads:
            await receive()
        if names:
            trace_headers.called(names)
        pairs = [(name.replace("_", "-").encode(), value) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": status, "headers": pairs})
        await send(chunk(body[:9]))
        await send(chunk(body[9:], more=False))

    return app


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
    served: Served, body: bytes, model: str | None
) -> None:
    await served.run(answers(reads=True), body=body)
    record = served.record
    assert (record.model, record.flags, record.tracestate) == (model, 1, STATE)


@pytest.mark.parametrize("paths", [["$.not"], ["$['é\r\nx: y']", *(f"$.properties.a{n}" for n in range(99))]])
async def test_a_response_says_what_is_not_enforced(served: Served, paths: list[str]) -> None:
    async def app(_scope: Any, _receive: Any, send: Any) -> None:
        await send(STREAM)
        exchange().unenforced += paths
        exchange().decided = True
        await send(chunk(b"", more=False))

    await served.run(app)
    told = served.headers[b"x-guidedmodel-unenforced"]
    assert told.isascii()
    assert b"\r" not in told
    assert len(told) <= 1024
    *known, last = json.loads(told)
    assert [*known, last] == paths or (known == paths[: len(known)] and last == "...")


async def test_an_exception_that_is_not_ours_is_left_to_vllm(served: Served) -> None:
    async def app(_scope: Any, _receive: Any, _send: Any) -> None:
        raise RuntimeError("upstream")

    with pytest.raises(RuntimeError, match="upstream"):
        await served.run(app)
    assert served.record.status == 500


async def test_vllms_own_error_goes_out_as_it_came(served: Served) -> None:
    text = b'{"error": {"message": "no such model", "code": 404}}'
    app = answers(404, text, content_type=b"application/json")
    await served.run(app, headers=((b"x-request-id", b"mine"),))
    assert served.body == text
    assert (served.headers[b"x-request-id"], served.record.status) == (b"mine", 404)
    assert served.headers[b"traceresponse"]


async def test_other_routes_are_left_alone(served: Served) -> None:
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


@pytest.mark.parametrize(
    ("state", "path"),
    [
        ("Applied", "/v1/completions"),
        ("Applied", "/v1/messages"),
        ("Applied", "/v1/completions\n"),  # Starlette's `$` matches before a line's end, too
        ("Skipped", "/v1/completions"),  # placement Scheduler
    ],
)
async def test_a_constraint_in_other_words_stops_the_application(
    served: Served, monkeypatch: pytest.MonkeyPatch, state: str, path: str
) -> None:
    """Before it reads the body. Whatever it answers is not what is sent; ids go along."""
    monkeypatch.setattr(ledger, "applied", lambda: [wire.Patch(name="admission", state=state)])
    went_on = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        try:
            await receive()
            went_on.append(True)
        except Exception:  # noqa: BLE001 - as FastAPI does
            await answers(400, b"There was an error parsing the body")(scope, receive, send)

    await served.run(app, path, body=ASKED, headers=((b"X-Request-Id", b"mine-1"),))
    assert not went_on
    whole = json.loads(served.body)
    record = served.record
    assert (whole["error"]["code"], whole["error"]["param"]) == ("request_unknown_constraint", "guided_json")
    assert (record.status, record.error_code) == (400, "request_unknown_constraint")
    assert served.headers[b"x-request-id"] == b"mine-1"
    assert served.headers[b"traceresponse"].decode() == f"00-{record.trace_id}-{record.span_id}-01"
    assert (whole["error"]["request_id"], whole["error"]["trace_id"]) == ("mine-1", record.trace_id)
    # Anthropic's library looks for these.
    of_anthropic = (served.headers.get(b"request-id"), whole.get("request_id"))
    assert of_anthropic == ((b"mine-1", "mine-1") if path == "/v1/messages" else (None, None))


async def test_a_body_that_nobody_reads_is_not_looked_at(served: Served) -> None:
    """As of a client without a key: he is told so, and nothing else."""
    await served.run(answers(401), body=ASKED)
    assert served.sent[0]["status"] == 401
    assert served.record.error_code is None


async def test_an_answers_id_is_what_vllm_calls_the_request(served: Served) -> None:
    await served.run(answers(names="cmpl-7", x_request_id=b"of --enable-request-id-headers"))
    names = [value for name, value in served.sent[0]["headers"] if name == b"x-request-id"]
    assert names == [b"cmpl-7"]


@pytest.mark.parametrize("name", ["a\nb", "\ud800", "x" * 300])
async def test_an_id_that_no_header_can_hold_is_not_told(served: Served, name: str) -> None:
    """A body's request_id; the server drops a connection over such a header."""
    await served.run(answers(names=f"cmpl-{name}"))
    told = served.headers[b"x-request-id"]
    assert told
    assert not HEADER_VALUE_RE.search(told)
    assert name.encode(errors="replace") not in told


@pytest.mark.parametrize("sent", ["x" * 200, "caf\u00e9"])
def test_an_id_that_cannot_be_told_back_is_not_taken(sent: str) -> None:
    assert not trace_headers.given([(b"x-request-id", sent.encode("latin-1"))])
