"""What middleware and engine share about one HTTP request: its span, its verdict, its failure."""

import contextvars
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from guided_contract.errors import GuidedError
from guided_contract.trace_context import TraceContext
from guided_contract.wire import Kind


@dataclass(slots=True)
class HttpExchange:
    """One HTTP request on a generating route.

    `decided` turns true with the first verdict, after which the response may start: it is not guided, its
    grammar is proven, or it fails;
    `failure` is the error to answer with, whatever the handler makes of it;
    `request_id` is what client and vLLM call the request, "" until either has said so;
    `written` is where the client wrote constraints and tools, as JSON, by the body's keys;
    `place` is the path of all that its grammar comes from, None where that is written in several places;
    `spec` is the text of the constraint that came of it, as wire.Prepare takes it;
    `unenforced` are JSONPaths of what its grammars ask for, and are not enforced in.
    """

    span: TraceContext
    method: str
    route: str
    start_ns: int = field(default_factory=time.time_ns)
    decided: bool = False
    failure: GuidedError | None = None
    kind: Kind | None = None
    grammar_key: str | None = None
    request_id: str = ""
    written: Mapping[str, bytes] = field(default_factory=dict)
    place: str | None = None
    spec: str = ""
    unenforced: list[str] = field(default_factory=list)

    def fail(self, error: GuidedError) -> None:
        """Settle the request with an error; the first one counts."""
        self.decided = True
        if self.failure is None:
            self.failure = error


# Set by the middleware, read where the request reaches the engine; tasks made in between inherit it.
current: contextvars.ContextVar[HttpExchange | None] = contextvars.ContextVar("guided_exchange", default=None)
