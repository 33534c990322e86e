"""The ASGI middleware that vLLM loads by `--middleware`: the HTTP span, and real statuses for refusals."""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from starlette.requests import Request

from guided_contract import names
from guided_contract.config import PodConfig
from guided_contract.records import MOST_NAME
from guided_engine.admission import (
    client_paths,
    draining,
    error_responses,
    identifiers,
    known_keys,
    request_checks,
    request_processors,
    request_tools,
    response_headers,
    trace,
    validation,
)
from guided_engine.admission.exchange import HttpExchange, current
from guided_engine.admission.gate import ROUTES, UNGUIDED_ROUTES, process_gate
from guided_engine.admission.request_body import RequestBody, keys_of, text_of
from guided_engine.telemetry import Telemetry

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]

_CLIENT_GONE = 499
_ERROR = 400
_GENERATING = ROUTES | UNGUIDED_ROUTES


class AdmissionMiddleware:
    """Wraps vLLM's application; transparent on routes that do not generate, and outside our pods.

    On a generating route the response's start is kept back until the request's verdict, so that a refusal
    has its own status, also for a streaming handler, which starts its response before it asks the engine.
    On every route, a pod that drains asks its clients to come over another connection.
    """

    def __init__(self, app: App) -> None:
        self._app = app
        self._gate = process_gate()
        self._closing: asyncio.Task[None] | None = None

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Serve one ASGI scope."""
        if self._gate is None:
            await self._app(scope, receive, send)
            return
        pod = self._gate.config
        if scope["type"] == "lifespan":
            if self._gate.active:
                self._gate.client.start()
            if pod.drain is not None:
                closing = draining.close_idle(scope["app"], pod.drain, pod.draining_file)
                self._closing = asyncio.create_task(closing)
        elif scope["type"] == "http" and pod.drain is not None:
            send = draining.closing_connections(send, pod.draining_file)
        route = scope.get("path", "").removeprefix(scope.get("root_path", ""))
        if scope["type"] != "http" or scope["method"] != "POST" or route not in _GENERATING:
            await self._app(scope, receive, send)
            return
        span = trace.begin(scope["headers"], pod.telemetry.sampling)
        exchange = HttpExchange(span, scope["method"], route, decided=not self._gate.active)
        exchange.request_id = identifiers.given(scope["headers"])
        exchange.scheme, exchange.server = trace.asked(scope)
        current.set(exchange)
        if pod.telemetry.endpoint is not None:
            # Without an endpoint nobody exports our span, and a caller's stays the parent of vLLM's.
            scope = {**scope, "headers": trace.continued(scope["headers"], span)}
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
        self._body = RequestBody()
        self._app: Any = None  # vLLM's

    async def serve(self, app: App, scope: MutableMapping[str, Any], telemetry: Telemetry) -> None:
        """Run the application, settle the response, and report it, however it ends."""
        self._app = scope.get("app")
        try:
            try:
                await app(scope, self._receive, self._send)
            except Exception as error:
                if self._status is None and validation.failed(error):
                    self._exchange.fail(validation.REFUSAL)
                # A stream of Responses lets its errors out; those that are ours are answered below.
                if self._exchange.failure is None:
                    if self._status is None:
                        await self._answer_crash(scope, error)
                    self._status = self._status or 500
                    raise
            await self._settle()
        finally:
            status = None if self._client_gone else self._status
            telemetry.send(self._exchange.record(status or _CLIENT_GONE, streams=self._streams))

    async def _answer_crash(self, scope: MutableMapping[str, Any], error: Exception) -> None:
        """Answer as vLLM's own handler would outside of us, where the answer would get no names."""
        handlers = getattr(scope.get("app"), "exception_handlers", {})
        if (answer := handlers.get(Exception)) is not None:
            self._kept.clear()
            response = await answer(Request(scope), error)
            await response(scope, self._receive, self._send)

    async def _receive(self) -> Message:
        message = await self._receive_inner()
        if message["type"] == "http.disconnect" and not self._over:
            self._client_gone = True
        text = self._body.take(message)
        if text is not None:
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
        keys, route = keys_of(text), self._exchange.route
        if keys is None:
            return
        self._exchange.model = text_of(keys, "model", MOST_NAME)
        self._exchange.ignored = known_keys.ignored(self._app, route, keys)
        most_bytes = self._pod.guided_decoding.compile.max_schema_bytes
        fault = request_checks.fault(route, keys, most_bytes)
        fault = fault or request_processors.fault(route, keys, self._pod.logits_processors)
        self._exchange.written = client_paths.written(keys)
        self._exchange.place = request_tools.place(route, keys) if fault is None else None
        if fault is not None:
            self._exchange.kind = fault.kind
            self._exchange.fail(fault.error)
            raise fault.error

    async def _send(self, message: Message) -> None:
        # Never waits for the verdict: a streaming handler asks the engine only after its start was taken.
        if self._over:
            return
        if self._fails_now:
            await self._settle()
            return
        self._kept.append(message)
        is_error = (
            self._kept[0].get("status", 200) >= _ERROR
        )  # its body is to tell what the request is called
        if _is_last(message):
            self._kept = error_responses.named(self._kept, self._exchange) if is_error else self._kept
            await self._flush()
        elif self._exchange.decided and not is_error:
            await self._flush()

    @property
    def _fails_now(self) -> bool:
        return self._exchange.failure is not None and (self._status is None or self._streams)

    async def _settle(self) -> None:
        failure = self._exchange.failure
        if self._over:
            return
        if failure is None or not self._fails_now:
            await self._flush()
            return
        self._kept.clear()
        if self._status is None:
            self._kept.extend(error_responses.response(failure, self._exchange))
        else:
            self._kept.append(error_responses.last_event(failure, self._exchange, self._events))
        await self._flush()

    async def _flush(self) -> None:
        while self._kept:
            message = self._kept.pop(0)
            if message["type"] == "http.response.start":
                unenforced = client_paths.unenforced(self._exchange)
                message = response_headers.with_listed(message, names.UNENFORCED_HEADER, unenforced)
                message = response_headers.with_listed(message, names.IGNORED_HEADER, self._exchange.ignored)
                self._status = message["status"]
                self._streams = _is_event_stream(message)
                message = identifiers.told(message, self._exchange)
            elif message["type"] == "http.response.body":
                self._events += 1
                self._over = _is_last(message)
            await self._send_inner(message)


def _is_last(message: Message) -> bool:
    return bool(message["type"] == "http.response.body" and not message.get("more_body"))


def _is_event_stream(start: Message) -> bool:
    headers = dict(start.get("headers", ()))
    return bool(headers.get(b"content-type", b"").startswith(b"text/event-stream"))
