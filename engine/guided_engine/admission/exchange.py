"""What middleware and engine share about one HTTP request: its span, its verdict, its failure."""

import contextvars
import time
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from guided_contract.errors import GuidedError
from guided_contract.records import HttpRequest
from guided_contract.trace_context import TraceContext
from guided_contract.wire import Kind


@dataclass(slots=True)
class HttpExchange:
    """One HTTP request on a generating route.

    `decided` turns true with the first verdict, after which the response may start: it is not guided, its
    grammar is proven, or it fails;
    `failure` is the error to answer with, whatever the handler makes of it;
    `request_id` is what client and vLLM call the request, "" until either has said so;
    `written` is where the client wrote constraints and tools, by the body's keys;
    `prompts` are the different prompts, as token ids, that it brings to the engine, where vLLM tells no
    parser the one of its answer; `hides_reasoning`: the answer is to leave reasoning out;
    `spec` is the text of the constraint that came of it, as wire.Prepare takes it;
    `unenforced` are JSONPaths of what its grammars ask for, and are not enforced in;
    `ignored` are keys of its body that vLLM does not know;
    `model` is what the client called it, None where it did not say.
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
    prompts: set[tuple[int, ...]] = field(default_factory=set)
    hides_reasoning: bool = False
    spec: str = ""
    unenforced: list[str] = field(default_factory=list)
    ignored: list[str] = field(default_factory=list)
    is_secure: bool = False  # the client asked by https
    model: str | None = None

    @property
    def name(self) -> str:
        """What the request is called: as its client or vLLM has called it, else by a new name."""
        if not self.request_id:
            self.request_id = uuid.uuid4().hex
        return self.request_id

    def fail(self, error: GuidedError) -> None:
        """Settle the request with an error; the first one counts."""
        self.decided = True
        if self.failure is None:
            self.failure = error

    def record(self, status: int, *, streams: bool) -> HttpRequest:
        """Return what telemetry is told of the request, which ends now."""
        return HttpRequest(
            **asdict(self.span),
            start_ns=self.start_ns,
            end_ns=time.time_ns(),
            route=self.route,
            status=status,
            stream=streams,
            kind=self.kind,
            grammar_key=self.grammar_key,
            error_code=self.failure.code if self.failure else None,
            ignored_keys=len(self.ignored),
            scheme="https" if self.is_secure else "http",
            model=self.model,
        )


# Set by the middleware, read where the request reaches the engine; tasks made in between inherit it.
current: contextvars.ContextVar[HttpExchange | None] = contextvars.ContextVar("guided_exchange", default=None)
