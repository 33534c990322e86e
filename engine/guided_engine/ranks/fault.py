"""What the processors of a sequence did for which it ends."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from guided_contract.errors import ErrorCode
from guided_contract.records import MOST_WORD, ProcessorFailure
from guided_contract.trace_context import Trace


@dataclass(frozen=True, slots=True)
class Fault:
    """A sequence's end for its processors.

    Attributes
    ----------
    code
        What it ends with.
    processors
        Those that may be at fault, by name.
    token
        How many tokens it had generated.
    raised
        The class of what one raised; None: nothing.
    """

    code: ErrorCode
    processors: Sequence[str]
    token: int
    raised: type[BaseException] | None = None
    time_ns: int = field(default_factory=time.time_ns)

    def record(self, request_id: str, trace: Trace, rank: int) -> ProcessorFailure:
        """Return its telemetry record, of a rank."""
        return ProcessorFailure(
            request_id=request_id,
            traceparent=trace.traceparent,
            tracestate=trace.tracestate,
            rank=rank,
            processors=list(self.processors),
            code=self.code.value,
            error_type="" if self.raised is None else _name(self.raised),
            token=self.token,
            time_ns=self.time_ns,
        )


def _name(kind: type[BaseException]) -> str:
    """Return a class as OpenTelemetry's exception.type has it."""
    return f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins.")[:MOST_WORD]
