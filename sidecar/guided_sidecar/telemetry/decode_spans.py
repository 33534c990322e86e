"""One `guided.decode` span per sequence, made of what each of its ranks told about it."""

import asyncio
from dataclasses import dataclass, field
from typing import Final

from opentelemetry.context import Context
from opentelemetry.trace import Tracer
from opentelemetry.util.types import AttributeValue

from guided_contract.errors import ErrorCode
from guided_contract.records import Decode
from guided_sidecar.telemetry import conventions as c
from guided_sidecar.telemetry import decode_counts, spans
from guided_sidecar.telemetry.incidents import Desyncs

# Ranks end a sequence in the same step; a record that finds its socket full is sent within ten seconds.
PATIENCE_S: Final = 12.0
_MOST_PENDING: Final = 2_000
_ERROR_CODES: Final = frozenset(code.value for code in ErrorCode)

_Key = tuple[int, str]  # group of ranks that sample the same sequences, request


@dataclass(slots=True)
class _Pending:
    parent: Context
    timer: asyncio.TimerHandle
    by_rank: dict[int, Decode] = field(default_factory=dict)


class Decodes:
    """Waits for the records of all ranks of a sequence, but not for ever.

    Parameters
    ----------
    ranks
        How many ranks sample one sequence: the tensor-parallel size.
    """

    def __init__(
        self, ranks: int, tracer: Tracer, desyncs: Desyncs, *, patience_s: float = PATIENCE_S
    ) -> None:
        self._ranks = ranks
        self._tracer = tracer
        self._desyncs = desyncs
        self._patience_s = patience_s
        self._pending: dict[_Key, _Pending] = {}  # oldest first

    def add(self, record: Decode) -> None:
        """Take one rank's record; one without a trace is forgotten."""
        parent = spans.remote(record.traceparent, record.tracestate)
        if not spans.parent_of(parent).is_valid:
            return
        key = (record.rank // self._ranks, record.request_id)
        if (pending := self._pending.get(key)) is None:
            timer = asyncio.get_running_loop().call_later(self._patience_s, self._finish, key)
            pending = self._pending[key] = _Pending(parent, timer)
        pending.by_rank[record.rank] = record
        if len(pending.by_rank) == self._ranks:
            self._finish(key)
        elif len(self._pending) > _MOST_PENDING:
            self._finish(next(iter(self._pending)))

    def flush(self) -> None:
        """Make spans of everything that waits."""
        for key in list(self._pending):
            self._finish(key)

    def _finish(self, key: _Key) -> None:
        pending = self._pending.pop(key)
        pending.timer.cancel()
        told = list(pending.by_rank.values())
        start_ns = min(record.start_ns for record in told)
        span = self._tracer.start_span(c.GUIDED_DECODE, pending.parent, start_time=start_ns)
        self._desyncs.ended(key[1], span)
        end_ns = max(record.end_ns for record in told)
        spans.end(span, error_code=_failure(told), end_ns=end_ns, attributes=attributes(told))


def attributes(told: list[Decode]) -> dict[str, AttributeValue]:
    """Return what the span of a sequence says, from its ranks' records, at least one.

    All ranks do the same, and the step waits for the slowest: times are those of the rank whose masks were
    waited for longest.
    """
    slowest = max(told, key=lambda record: (record.exposed_ns, record.fill_ns))
    return {
        c.RANK: slowest.rank,
        c.DECODE_RANKS: len(told),
        c.GRAMMAR_KEY: slowest.grammar_key,
        c.GRAMMAR_BACKEND: slowest.backend,
        c.DECODE_FILL_MAX: max(record.fill_max_ns for record in told) / 1e9,
        **dict(decode_counts.attributes(slowest)),
        c.DECODE_TAKES_DRAFTS: slowest.takes_drafts,
        c.DECODE_END_REASON: _failure(told) or slowest.end_reason,
    }


def _failure(told: list[Decode]) -> str:
    return next((record.end_reason for record in told if record.end_reason in _ERROR_CODES), "")
