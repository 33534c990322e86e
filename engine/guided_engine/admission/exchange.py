"""What middleware and engine share about one HTTP request: its span, its verdict, its failure."""

import contextvars
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from guided_contract.errors import GuidedError
from guided_contract.records import MOST_CHOICES, HttpRequest
from guided_contract.trace_context import TraceContext
from guided_contract.wire import Kind


class SequenceEnd(NamedTuple):
    """How a sequence ended that vLLM generated to its end; `reason` in vLLM's words."""

    reason: str
    input_tokens: int
    output_tokens: int


@dataclass(slots=True)
class HttpExchange:
    """One HTTP request on a generating route.

    `decided` turns true with the first verdict, after which the response may start: it is not guided, its
    grammar is proven, or it fails;
    `failure` is the error to answer with, whatever the handler makes of it;
    `request_id` is what client and vLLM call the request, "" until either has said so;
    `written` is where the client wrote constraints and tools, by the body's keys;
    `spec` is the text of the constraint that came of it, as wire.Prepare takes it;
    `unenforced` are JSONPaths of what its grammars ask for, and are not enforced in;
    `ignored` are keys of its body that vLLM does not know;
    `scheme`, `server` and `model` are what the client asked, and by what name, None where it did not say;
    `ends` has for each of its prompts how its sequences ended, by their numbers.
    """

    span: TraceContext
    route: str
    start_ns: int = field(default_factory=time.time_ns)
    decided: bool = False
    failure: GuidedError | None = None
    kind: Kind | None = None
    grammar_key: str | None = None
    request_id: str = ""
    written: Mapping[str, Any] = field(default_factory=dict)
    spec: str = ""
    unenforced: list[str] = field(default_factory=list)
    ignored: list[str] = field(default_factory=list)
    scheme: Literal["http", "https"] = "http"
    server: tuple[str | None, int | None] = (None, None)
    model: str | None = None
    ends: list[dict[int, SequenceEnd]] = field(default_factory=list)

    def fail(self, error: GuidedError) -> None:
        """Settle the request with an error; the first one counts."""
        self.decided = True
        if self.failure is None:
            self.failure = error

    def record(self, status: int, *, streams: bool) -> HttpRequest:
        """Return what telemetry is told of the request, which ends now."""
        prompts = [list(ends.values()) for ends in self.ends if ends]
        ends = [ends[number] for ends in self.ends for number in sorted(ends)]
        return HttpRequest(
            trace_id=self.span.trace_id,
            span_id=self.span.span_id,
            parent_span_id=self.span.parent_span_id,
            flags=self.span.flags,
            tracestate=self.span.tracestate,
            start_ns=self.start_ns,
            end_ns=time.time_ns(),
            method="POST",
            route=self.route,
            status=status,
            stream=streams,
            kind=self.kind,
            grammar_key=self.grammar_key,
            error_code=self.failure.code if self.failure else None,
            ignored_keys=len(self.ignored),
            scheme=self.scheme,
            server_address=self.server[0],
            server_port=self.server[1],
            model=self.model,
            # A prompt counts once, however many sequences continue it.
            input_tokens=sum(sequences[0].input_tokens for sequences in prompts) if prompts else None,
            output_tokens=sum(end.output_tokens for end in ends) if ends else None,
            finish_reasons=[end.reason for end in ends[:MOST_CHOICES]],
        )


# Set by the middleware, read where the request reaches the engine; tasks made in between inherit it.
current: contextvars.ContextVar[HttpExchange | None] = contextvars.ContextVar("guided_exchange", default=None)
