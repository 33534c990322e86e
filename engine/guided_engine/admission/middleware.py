"""The ASGI middleware that vLLM loads by `--middleware`: the HTTP span, and real statuses for refusals."""

import asyncio
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from guided_contract.config import PodConfig
from guided_contract.errors import GuidedError
from guided_contract.records import MOST_NAME
from guided_engine.admission import (
    client_paths,
    draining,
    error_responses,
    headers,
    request_body,
    request_checks,
)
from guided_engine.admission.exchange import HttpExchange, current
from guided_engine.admission.gate import ROUTES, UNGUIDED_ROUTES, process_gate
from guided_engine.telemetry import Telemetry

_CLIENT_GONE = 499
_GENERATING = ROUTES | UNGUIDED_ROUTES


class AdmissionMiddleware:
    """Wraps vLLM's application; transparent on routes that do not generate, and outside our pods.

    On a generating route the response's start is kept back until the request's verdict, so that a refusal
    has its own status, also for a streaming handler, which starts its response before it asks the engine.
    On every route, a pod that drains asks its clients to come over another connection.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._gate = process_gate()
        self._closing: asyncio.Task[None] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI scope."""
        if self._gate is None:
            await self._app(scope, receive, send)
            return
        pod = self._gate.config
        if scope["type"] == "lifespan":
            if self._gate.active:
                self._gate.client.start()
            if pod.drain is not None:
                closing = draining.close_idle(scope["app"], pod, pod.drain.endpoint_lag_s)
                self._closing = asyncio.create_task(closing)
        elif scope["type"] == "http" and pod.drain is not None:
            send = headers.closing_connections(send, pod)
        # As starlette's routes match: `$` also before a line's end.
        route = scope.get("path", "").removeprefix(scope.get("root_path", "")).removesuffix("\n")
        if scope["type"] != "http" or scope["method"] != "POST" or route not in _GENERATING:
            await self._app(scope, receive, send)
            return
        span = headers.begin(scope["headers"], pod.telemetry.sampling)
        exchange = HttpExchange(span, route, decided=not self._gate.active)
        exchange.request_id = headers.given(scope["headers"])
        exchange.is_secure = scope.get("scheme") == "https"
        current.set(exchange)
        if pod.telemetry.endpoint is not None:
            # Without an endpoint nobody exports our span, and a caller's stays the parent of vLLM's.
            scope = {**scope, "headers": headers.continued(scope["headers"], span)}
        await _Response(exchange, receive, send, pod).serve(self._app, scope, self._gate.telemetry)


class _Response:
    """The response to one request, between vLLM's application and the server."""

    def __init__(self, exchange: HttpExchange, receive: Receive, send: Send, pod: PodConfig) -> None:
        self._exchange = exchange
        self._pod = pod
        self._receive_inner = receive
        self._send_inner = send
        self._kept: list[Message] = []  # not sent yet, for want of a verdict
        self._status: int | None = None  # as sent; None: the response has not started
        self._streams = False  # it is an event stream
        self._events = 0  # body messages sent
        self._over = False  # the last body message has been sent
        self._client_gone = False
        self._chunks: list[bytes] = []  # of the body, the application's own
        self._app: Any = None  # vLLM's

    async def serve(self, app: ASGIApp, scope: Scope, telemetry: Telemetry) -> None:
        """Run the application, settle the response, and report it, however it ends."""
        self._app = scope.get("app")
        try:
            try:
                await app(scope, self._receive, self._send)
            except Exception:
                # A stream of Responses lets its errors out; those that are ours are answered below.
                if self._exchange.failure is None:
                    self._status = self._status or 500
                    raise
            await self._settle()
        finally:
            status = None if self._client_gone else self._status
            telemetry.send(self._exchange.record(status or _CLIENT_GONE, streams=self._streams))

    async def _receive(self) -> Message:
        message = await self._receive_inner()
        if message["type"] == "http.disconnect" and not self._over:
            self._client_gone = True
        if message["type"] == "http.request":
            self._chunks.append(message.get("body", b""))
            if not message.get("more_body"):
                text, self._chunks = b"".join(self._chunks), []
                self._read(text)
        return message

    def _read(self, text: bytes) -> None:
        """Look at the body before the application does.

        Raises
        ------
        GuidedError
            It asks for something that vLLM would ignore, or trips over; raised, so that the application goes
            no further.
        """
        exchange = self._exchange
        try:
            body = request_body.read(text)
            if body is None:
                return
            model = body.get("model")
            is_fit = isinstance(model, str) and len(model) <= MOST_NAME and model.isprintable()
            exchange.model = model if is_fit else None
            exchange.ignored = request_body.ignored(self._app, exchange.route, body)
            exchange.written = client_paths.written(body)
            exchange.hides_reasoning = body.get("include_reasoning") is False
            request_checks.check(exchange.route, body, self._pod.guided_decoding.compile.max_schema_bytes)
        except GuidedError as error:
            exchange.fail(error)
            raise

    async def _send(self, message: Message) -> None:
        # Never waits for the verdict: a streaming handler asks the engine only after its start was taken.
        if self._over:
            return
        if self._fails_now:
            await self._settle()
            return
        self._kept.append(message)
        if _is_last(message) or self._exchange.decided:
            await self._flush()

    @property
    def _fails_now(self) -> bool:
        return self._exchange.failure is not None and (self._status is None or self._streams)

    async def _settle(self) -> None:
        failure = self._exchange.failure
        if failure is not None and self._fails_now and not self._over:
            if self._status is None:
                self._kept = error_responses.response(failure, self._exchange)
            else:
                self._kept = [error_responses.last_event(failure, self._exchange, self._events)]
        await self._flush()

    async def _flush(self) -> None:
        while self._kept:
            message = self._kept.pop(0)
            if message["type"] == "http.response.start":
                self._status = message["status"]
                self._streams = _is_event_stream(message)
                message = headers.told(message, self._exchange)
            elif message["type"] == "http.response.body":
                self._events += 1
                self._over = _is_last(message)
            await self._send_inner(message)


def _is_last(message: Message) -> bool:
    return bool(message["type"] == "http.response.body" and not message.get("more_body"))


def _is_event_stream(start: Message) -> bool:
    return bool(dict(start.get("headers", ())).get(b"content-type", b"").startswith(b"text/event-stream"))
