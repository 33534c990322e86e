"""Telemetry records: one msgpack datagram each, from engine processes to the sidecar.

They never hold prompt, output or schema text. Senders never block: a full or absent socket drops the
record and counts it. Ids are lowercase hex as in W3C traceparent; times are CLOCK_REALTIME nanoseconds.
"""

import msgspec

from guided_contract.wire import Kind


class Record(msgspec.Struct, frozen=True, tag=True):
    """Base of all records. `dropped`: records this process lost since its last one that arrived."""

    dropped: int = 0


class HttpRequest(Record, frozen=True, kw_only=True):
    """One HTTP request on a generating route, ended: the root span of its trace."""

    trace_id: str
    span_id: str
    parent_span_id: str | None = None
    sampled: bool = True
    start_ns: int
    end_ns: int
    method: str
    route: str
    status: int  # 499: the client went away
    stream: bool = False
    kind: Kind | None = None  # None: unguided
    grammar_key: str | None = None
    error_code: str | None = None


class Decode(Record, frozen=True, kw_only=True):
    """One guided sequence on one rank, ended. Durations in nanoseconds."""

    traceparent: str | None
    rank: int
    grammar_key: str
    backend: str
    start_ns: int
    end_ns: int
    steps: int = 0
    fills: int = 0
    fill_ns: int = 0
    fill_max_ns: int = 0
    tokens: int = 0
    drafts_proposed: int = 0
    drafts_accepted: int = 0
    end_reason: str = ""  # an error code, "completed" (the grammar ended) or "stopped" (length, abort)


AnyRecord = HttpRequest | Decode

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
    except msgspec.MsgspecError as error:
        raise ValueError(str(error)) from error
