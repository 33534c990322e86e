"""The gate of one API server process: every request passes it on its way to the engine."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NoReturn

import msgspec

from guided_contract import config, names, wire
from guided_contract.config import PodConfig
from guided_contract.errors import ErrorCode, GuidedError
from guided_engine import ledger
from guided_engine.admission import headers, request_processors, request_routes
from guided_engine.admission.constraints import Constraint, constraint_of, kind_of, named_grammar, options_of
from guided_engine.admission.exchange import HttpExchange, current
from guided_engine.admission.service_client import GrammarClient, Lease
from guided_engine.telemetry import Telemetry

# vLLM generates here too, in formats that have no place for our errors (docs/routes.md says for each why):
# unguided requests are served, guided ones refused. What is on neither list has no exchange, and is refused.
UNGUIDED_ROUTES: Final = frozenset(
    {
        "/invocations",
        "/cohere/v2/chat",
        "/v1/decisions",
        "/v1/systemone",
        "/generative_scoring",
        "/v1/audio/transcriptions",
        "/v1/audio/translations",
    }
)
# Where guided requests are served, and the middleware answers for us in the route's own format.
ROUTES: Final = frozenset(request_routes.ROUTES) - UNGUIDED_ROUTES
# Of these, the routes that render no chat template: nothing is reasoned about there.
_PLAIN_ROUTES: Final = frozenset({"/v1/completions", "/inference/v1/generate"})
# Where a stop string that cuts a guided answer would be told as its end; Messages names the string instead.
_CHAT_ROUTES: Final = ROUTES - _PLAIN_ROUTES - {"/v1/messages"}


@dataclass(frozen=True, slots=True)
class Admitted:
    """What a request brings through the gate. `lease` None: it is not guided."""

    exchange: HttpExchange
    lease: Lease | None = None

    @property
    def is_unproven(self) -> bool:
        """Whether nothing of its answer may be seen yet, an error neither."""
        return self.lease is not None and self.lease.proof is not None

    @property
    def is_chat(self) -> bool:
        """Whether it is guided, on a route whose answers are read as messages and calls."""
        return self.lease is not None and self.exchange.route in _CHAT_ROUTES

    @property
    def is_plain(self) -> bool:
        """Whether it is guided, on a route that renders no chat template."""
        return self.lease is not None and self.exchange.route in _PLAIN_ROUTES

    def reasoning(self, said: Mapping[str, Any]) -> dict[str, bool]:
        """Return what the engine is told of the request's reasoning, beside what the route has `said`."""
        silent = said.get("reasoning_ended") is None and not said.get("reasoning_parser_kwargs")
        return {"reasoning_ended": True} if self.is_plain and silent else {}

    def fail(self, error: GuidedError) -> None:
        """Have its HTTP exchange answer with an error."""
        self.exchange.fail(error)

    @property
    def arguments(self) -> dict[str, object]:
        """What goes to the ranks in `extra_args`: its ticket."""
        if self.lease is None:
            return {}
        carried = self.exchange.span.carried
        ticket = wire.Ticket(key=self.lease.key, backend=self.lease.backend, **carried)
        return {names.TICKET_ARG: msgspec.structs.asdict(ticket)}


@dataclass(frozen=True, slots=True)
class Gate:
    """Admits requests: at once if unguided, else when every rank holds the grammar, proven or not."""

    config: PodConfig
    client: GrammarClient
    telemetry: Telemetry

    @property
    def active(self) -> bool:
        """Whether requests are admitted in this process (else vLLM's own path serves guided ones)."""
        return any(patch.name == "admission" and patch.state == "Applied" for patch in ledger.applied())

    async def admit(
        self,
        structured_outputs: Any,
        extra_args: Mapping[str, Any] | None,
        *,
        ignores_end: bool = False,
        sampling_params: Any = None,
    ) -> Admitted:
        """Admit a request by its sampling parameters.

        `ignores_end`: it goes on after an end of its text; `sampling_params`: all of them, for logits
        processors that judge them.

        Raises
        ------
        GuidedError
            The request is refused; its HTTP exchange has been told.
        """
        # Without one, nobody asked over HTTP, and nobody is told.
        exchange = current.get() or HttpExchange(headers.begin((), 0), "")
        exchange.kind = kind_of(structured_outputs) or exchange.kind  # of refusals, too
        try:
            place = request_routes.arguments(exchange.route)
            options = options_of(extra_args, self.config.guided_decoding, place)
            processors = self.config.logits_processors
            request_processors.chosen(exchange.route, extra_args, processors, sampling_params)
            named = named_grammar(structured_outputs, extra_args, place)
            if structured_outputs is None and named is None:
                exchange.decided = True
                return Admitted(exchange)
            if ignores_end:
                _refuse_open_end(exchange.route)
            return await self._admit_guided(named, structured_outputs, exchange, options)
        except GuidedError as error:
            exchange.fail(error)
            raise

    async def _admit_guided(
        self, asked: Constraint | None, own: Any, exchange: HttpExchange, options: dict[str, Any]
    ) -> Admitted:
        if exchange.route not in ROUTES:
            message = f"guided requests are not supported on this route; use {', '.join(sorted(ROUTES))}"
            raise GuidedError(ErrorCode.REQUEST_NOT_ADMITTED, message)
        limits = self.config.guided_decoding.compile
        if asked is not None:
            exchange.written = {}  # the text at fault is none of the client's
        else:
            asked = constraint_of(own, limits.max_schema_bytes)
            exchange.kind, exchange.spec = asked.kind, asked.spec
        lease = await self.client.prepare(asked._replace(**options), limits.timeout_s, exchange.span)
        exchange.kind, exchange.grammar_key = lease.constraint.kind, lease.key
        exchange.unenforced += [path for path in lease.unenforced if path not in exchange.unenforced]
        exchange.decided |= lease.proof is None
        admitted = Admitted(exchange, lease)
        if lease.constraint.kind == "structural_tag":
            # What is held back comes as one piece, and vLLM's parsers of tool calls misread long pieces.
            try:
                await self.prove(admitted)
            except BaseException:
                lease.release()
                raise
        return admitted

    async def prove(self, admitted: Admitted) -> None:
        """Wait until the grammar of a guided request is proven: its answer may be seen from then on.

        Raises
        ------
        GuidedError
            It is refused; its HTTP exchange has been told.
        """
        lease, exchange = admitted.lease, admitted.exchange
        if lease is None:
            return
        try:
            await self.client.prove(lease, self.config.guided_decoding.compile.timeout_s)
        except GuidedError as error:
            exchange.fail(error)
            raise
        exchange.decided = True


@functools.cache
def process_gate() -> Gate | None:
    """Return this process' gate, made at the first call; None outside our pods."""
    pod = config.load()
    if pod is None:
        return None
    client = GrammarClient(pod.service_socket, lambda: ledger.hello("api"))
    return Gate(pod, client, Telemetry(pod.telemetry_socket))


def _refuse_open_end(route: str) -> NoReturn:
    message = "ignore_eos cannot be combined with a constraint: text after its end would be unconstrained"
    path = "sampling_params.ignore_eos" if route == "/inference/v1/generate" else "ignore_eos"
    raise GuidedError(ErrorCode.REQUEST_INVALID, message, path=path)
