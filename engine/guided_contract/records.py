"""Telemetry records: one msgpack datagram each, from engine processes to the sidecar.

They never hold prompt, output or schema text. Senders never block: a full or absent socket drops the
record and counts it. Ids are lowercase hex as in W3C traceparent; times are CLOCK_REALTIME nanoseconds.
"""

from typing import Annotated, Final, Literal

import msgspec

from guided_contract.choices import MOST_PROCESSORS
from guided_contract.errors import MALFORMED
from guided_contract.trace_context import SAMPLED, Tracestate
from guided_contract.wire import Backend, Kind, Natural

# Labels of metrics, which keep every value that they ever had: few can be told apart.
Status = Annotated[int, msgspec.Meta(ge=100, le=599)]
Rank = Annotated[int, msgspec.Meta(ge=0, lt=8192)]  # as many as sample with the CRD's most tensor and data

MOST_WORD: Final = 256
Word = Annotated[str, msgspec.Meta(max_length=MOST_WORD)]  # ours, never a client's
TraceId = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{32}$")]
SpanId = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{16}$")]
MOST_NAME: Final = 256
Name = Annotated[str, msgspec.Meta(max_length=MOST_NAME)]  # a client's word for a model

# How a guided sequence ended: its grammar came to the end; max_tokens or a full context; a stop string or a
# stop token amid its text; its client went away, or the engine gave it up (for repetition, too).
EndReason = Literal["completed", "length", "stopped", "aborted"]


class Record(msgspec.Struct, frozen=True, tag=True):
    """Base of all records. `dropped`: records this process lost since its last one that arrived."""

    dropped: Natural = 0


class HttpRequest(Record, frozen=True, kw_only=True):
    """One HTTP request on a generating route, ended: the root span of its trace."""

    trace_id: TraceId
    span_id: SpanId
    parent_span_id: SpanId | None = None
    flags: Annotated[int, msgspec.Meta(ge=0, le=255)] = 1  # as in traceparent
    tracestate: Tracestate | None = None
    start_ns: Natural
    end_ns: Natural
    route: str
    status: Status  # 499: the client went away
    stream: bool = False
    kind: Kind | None = None  # None: unguided
    grammar_key: str | None = None
    error_code: str | None = None
    ignored_keys: Natural = 0  # of its body, that vLLM does not know
    scheme: Literal["http", "https"] = "http"
    model: Name | None = None  # as the client wrote it

    @property
    def sampled(self) -> bool:
        """Whether the trace is exported."""
        return bool(self.flags & SAMPLED)


class Decode(Record, frozen=True, kw_only=True):
    """One guided sequence on one rank, ended. Durations in nanoseconds.

    `exposed_ns` is how long sampling waited for this rank's masks while the sequence ran. `drafts_forbidden`
    counts proposed drafts that the grammar did not allow, and those after them.
    """

    traceparent: Word | None
    tracestate: Tracestate | None = None
    rank: Rank
    grammar_key: Word
    backend: Backend
    start_ns: Natural
    end_ns: Natural
    steps: Natural = 0
    fills: Natural = 0
    fill_ns: Natural = 0
    fill_max_ns: Natural = 0
    exposed_ns: Natural = 0
    tokens: Natural = 0
    drafts_proposed: Natural = 0
    drafts_accepted: Natural = 0
    drafts_forbidden: Natural = 0
    takes_drafts: bool = True  # False: a logits processor of its own takes none, so that all were refused
    end_reason: Word = ""  # an EndReason or an error code


class Digest(msgspec.Struct, frozen=True, array_like=True):
    """What one rank knew of one sequence before it sampled.

    `number` counts the sequence's digests from 0, `position` the tokens accepted; `digest` is a checksum of
    those since the digest before and of the next token's mask.
    """

    request_id: str
    number: Natural
    position: Natural
    digest: Natural


class Digests(Record, frozen=True, kw_only=True):
    """All digests that a rank made in one step; `rank` is the global one."""

    rank: Rank
    digests: list[Digest]


class ProcessorTime(msgspec.Struct, frozen=True, array_like=True):
    """What a logits processor's factory took, and in how many of its steps over 5 ms."""

    name: Word
    steps: Natural
    over_budget: Natural
    total_ns: Natural


class ProcessorTimes(Record, frozen=True, kw_only=True):
    """What the logits processors of one rank took."""

    rank: Rank
    times: Annotated[list[ProcessorTime], msgspec.Meta(max_length=MOST_PROCESSORS)]


class ProcessorFailure(Record, frozen=True, kw_only=True):
    """A sequence of one rank that ends for its logits processors: those that may be at fault, by name."""

    rank: Rank
    processors: Annotated[list[Word], msgspec.Meta(max_length=MOST_PROCESSORS)]
    code: Word


class MatchersRestart(Record, frozen=True, kw_only=True):
    """The process of a rank's matchers ended, and another took over."""

    rank: Rank


class DraftTokens(Record, frozen=True, kw_only=True):
    """How many draft tokens one engine core gives each sequence of a batch, since the record before.

    `chosen` is for the batch size of the latest step, None where it chooses no more, or never did, and `why`
    says why. `changes` count those of the number, by choice or batch size.
    """

    engine: Rank
    chosen: Natural | None
    why: Word = ""
    changes: Natural = 0


AnyRecord = HttpRequest | Decode | Digests | ProcessorTimes | ProcessorFailure | MatchersRestart | DraftTokens

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[AnyRecord] = msgspec.msgpack.Decoder(AnyRecord)


def encode(record: AnyRecord) -> bytes:
    """Return a record as one datagram."""
    return _encoder.encode(record)


def decode(datagram: bytes) -> AnyRecord:
    """Decode one datagram.

    Raises
    ------
    ValueError
        Not msgpack, or no known record.
    """
    try:
        return _decoder.decode(datagram)
    except MALFORMED as error:
        raise ValueError(str(error)) from error
