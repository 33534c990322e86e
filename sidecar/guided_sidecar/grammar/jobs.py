"""Messages among service, template process and grammar workers: msgpack, one per packet or frame.

The service talks to the template over a SOCK_SEQPACKET pair (a message a packet, file descriptors beside it)
and to each worker over a stream pair (frames with a 4-byte little-endian length).
"""

import struct
from typing import Final

import msgspec

from guided_contract.counting import Position
from guided_contract.wire import Backend, Kind

LENGTH: Final = struct.Struct("<I")
MAX_PACKET_BYTES: Final = 64 << 10
MAX_JOB_BYTES: Final = (
    16 << 20
)  # a schema's limit is far below; llguidance's text is about as long as its schema


class Packet(msgspec.Struct, frozen=True, tag=True):
    """Base of all messages."""


class Fork(Packet, frozen=True):
    """Service to template: make one worker."""


class Ready(Packet, frozen=True, kw_only=True):
    """Template to service: imports done, tokenizer read. `versions` are those of the grammar libraries."""

    tokenizer: str  # fingerprint: equal for equal tokenizer and vocabulary size
    vocab_size: int
    versions: dict[str, str]
    resident_bytes: int


class Forked(Packet, frozen=True, kw_only=True):
    """Template to service: one worker; its stream, pidfd and standard error come as file descriptors."""

    pid: int


class Exited(Packet, frozen=True, kw_only=True):
    """Template to service: a worker is gone from the process table. `status` as waitpid gives it."""

    pid: int
    status: int


class Job(Packet, frozen=True, kw_only=True):
    """Service to worker: compile and prove one grammar; `backends`, `named`, `routes` as in keys.Choice."""

    key: str
    kind: Kind
    spec: str
    backends: list[Backend]
    named: Backend | None = None
    routes: bool = True
    any_whitespace: bool
    is_proven: bool = True
    timeout_s: float
    memory_bytes: int


class Proof(msgspec.Struct, frozen=True):
    """One compiled grammar was proven, or not: `error_code`. Times are CLOCK_REALTIME nanoseconds."""

    backend: Backend
    start_ns: int
    end_ns: int
    error_code: str = ""


class Done(Packet, frozen=True, kw_only=True):
    """Worker to service: what the ranks are to load (see wire.Load), and what it cost."""

    backend: Backend
    artifact: str | None = None
    sha256: str | None = None
    spec: str | None = None
    positions: list[Position] = []
    size_bytes: int = 0
    compile_ns: int = 0
    proof_ns: int = 0
    proofs: list[Proof] = []  # of every backend that was tried
    retire: bool = False  # the worker ends after this message


class Failed(Packet, frozen=True, kw_only=True):
    """Worker to service: a refusal; fields as in errors.GuidedError."""

    code: str
    message: str
    path: str | None = None
    proofs: list[Proof] = []
    retire: bool = False


FromTemplate = Ready | Forked | Exited
Outcome = Done | Failed

_encoder = msgspec.msgpack.Encoder()
_to_template: msgspec.msgpack.Decoder[Fork] = msgspec.msgpack.Decoder(Fork)
_from_template: msgspec.msgpack.Decoder[FromTemplate] = msgspec.msgpack.Decoder(FromTemplate)
_job: msgspec.msgpack.Decoder[Job] = msgspec.msgpack.Decoder(Job)
_outcome: msgspec.msgpack.Decoder[Outcome] = msgspec.msgpack.Decoder(Outcome)


class JobError(Exception):
    """A message between our own processes is not what it should be: the sender is broken and must go."""


def packet(message: Packet) -> bytes:
    """Return a message as one packet."""
    return _encoder.encode(message)


def frame(message: Packet) -> bytes:
    """Return a message as length and body for a stream."""
    body = _encoder.encode(message)
    return LENGTH.pack(len(body)) + body


def body_length(header: bytes) -> int:
    """Return the length that a frame's header announces.

    Raises
    ------
    JobError
        It exceeds MAX_JOB_BYTES.
    """
    (length,) = LENGTH.unpack(header)
    if length > MAX_JOB_BYTES:
        raise JobError(f"a frame of {length} bytes")
    return int(length)


def decode_fork(body: bytes) -> Fork:
    """Decode what the template received."""
    return _to_template.decode(body)


def decode_from_template(body: bytes) -> FromTemplate:
    """Decode what the template sent.

    Raises
    ------
    JobError
        Not one of FromTemplate.
    """
    try:
        return _from_template.decode(body)
    except msgspec.MsgspecError as error:
        raise JobError(str(error)) from error


def decode_job(body: bytes) -> Job:
    """Decode what a worker received."""
    return _job.decode(body)


def decode_outcome(body: bytes) -> Outcome:
    """Decode a worker's answer.

    Raises
    ------
    JobError
        Not one of Outcome.
    """
    try:
        return _outcome.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise JobError(str(error)) from error
