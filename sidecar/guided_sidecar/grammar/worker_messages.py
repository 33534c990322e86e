"""Messages among service, template process and grammar workers, in msgpack.

The template has a SOCK_SEQPACKET pair: it is sent FORK, and sends a message a packet, with file descriptors
beside it. Each worker has a stream pair, of frames as on the service's socket.
"""

from typing import Final

import msgspec

from guided_contract import wire
from guided_contract.config import CompileConfig
from guided_contract.errors import ErrorCode, GuidedError
from guided_contract.wire import Backend, Kind, Natural

FORK: Final = b"fork"  # make one worker
MAX_PACKET_BYTES: Final = 64 << 10
# What is compiled goes on to the ranks in one message, which adds a key and names.
MAX_OUTCOME_BYTES: Final = wire.MAX_FRAME_BYTES - (64 << 10)
_MOST_MESSAGE: Final = 800  # that it says of a refusal: a client reads it, and thousands of refusals are kept
_MOST_PATH: Final = 300
MOST_POSITIONS: Final = 4096


class Packet(msgspec.Struct, frozen=True, tag=True):
    """Base of all messages."""


class Ready(Packet, frozen=True, kw_only=True):
    """Template to service: imports done, tokenizer read. `versions` are those of the grammar libraries."""

    tokenizer: dict[Backend, str]  # fingerprints (see guided_contract.fingerprint)
    vocab_size: int
    versions: dict[str, str]
    resident_bytes: int


class Forked(Packet, frozen=True, kw_only=True):
    """Template to service: one worker; its stream, pidfd and standard error come as file descriptors."""

    pid: int


class Job(Packet, frozen=True, kw_only=True):
    """Service to worker: compile and prove one grammar.

    `backends`: the preferred one first; without `named`, in no order. `routes`: whether another than the
    first may serve what that does not enforce; `allows`: whether what none enforces is left out.
    `whitespace`: characters between two tokens of JSON at most; None: any number.
    """

    key: str
    kind: Kind
    spec: str
    backends: list[Backend]
    named: Backend | None = None
    routes: bool = True
    allows: bool = False
    limits: CompileConfig = CompileConfig()
    unmeasured: dict[Backend, str] = {}  # as in trust: those that are not to be taken unasked
    whitespace: Natural | None = None
    is_proven: bool = True
    timeout_s: float
    memory_bytes: int
    tokenizer: dict[Backend, str] = {}  # what the key was made of, as in Ready; a worker has no other


class Proof(msgspec.Struct, frozen=True):
    """One compiled grammar was proven, or not: `error_code`. Times are CLOCK_REALTIME nanoseconds."""

    backend: Backend
    start_ns: Natural
    end_ns: Natural
    error_code: str = ""
    texts: Natural = 0  # that walks came to the end of


class Unenforced(msgspec.Struct, frozen=True):
    """What was allowed: a JSONPath in the grammar's text, and a keyword, which is no word of a client's."""

    path: str
    keyword: str


class Done(wire.Load, frozen=True, kw_only=True):
    """Worker to service: what the ranks are to load, and what it cost."""

    key: str = ""  # is the job's
    unenforced: tuple[Unenforced, ...] = ()
    size_bytes: Natural = 0  # of the text, or what a rank holds of it if that is more
    compile_ns: Natural = 0
    proof_ns: Natural = 0
    proofs: tuple[Proof, ...] = ()  # of every backend that was tried
    retire: bool = False  # the worker ends after this message


class Compiled(Packet, frozen=True, kw_only=True):
    """Worker to service: what the ranks may load; Done, Failed or another library's Compiled follows."""

    done: Done


class Failed(Packet, frozen=True, kw_only=True):
    """Worker to service: a refusal; fields as in errors.GuidedError."""

    code: ErrorCode
    message: str
    path: str | None = None
    proofs: tuple[Proof, ...] = ()
    retire: bool = False


FromTemplate = Ready | Forked
Outcome = Done | Failed
FromWorker = Compiled | Outcome

_from_template: msgspec.msgpack.Decoder[FromTemplate] = msgspec.msgpack.Decoder(FromTemplate)
_from_worker: msgspec.msgpack.Decoder[FromWorker] = msgspec.msgpack.Decoder(FromWorker)
packet: Final = msgspec.msgpack.Encoder().encode
decode_from_template: Final = _from_template.decode
decode_from_worker: Final = _from_worker.decode
decode_job: Final = msgspec.msgpack.Decoder(Job).decode


def answer(message: FromWorker) -> bytes:
    """Return a worker's answer as a frame; of what is too long for the ranks, one that is a refusal."""
    size = len(packet(message))
    if size <= MAX_OUTCOME_BYTES:
        return wire.frame(message)
    if isinstance(message, Compiled):
        return b""  # its Done will be refused
    said = f"the compiled grammar has {size} bytes; the limit is {MAX_OUTCOME_BYTES}"
    return wire.frame(refusal(GuidedError(ErrorCode.GRAMMAR_TOO_LARGE, said), retire=message.retire))


def refusal(error: GuidedError, *, retire: bool = False) -> Failed:
    """Return what a worker answers for an error, in few enough words."""
    path = _shortened(error.path, _MOST_PATH) if error.path is not None else None
    return Failed(code=error.code, message=_shortened(error.message, _MOST_MESSAGE), path=path, retire=retire)


def unenforced(path: str, keyword: str) -> Unenforced:
    """Return what is not enforced, in few enough words."""
    return Unenforced(_shortened(path, _MOST_PATH), keyword)


def _shortened(text: str, most: int) -> str:
    """Return a text's begin and end, which say where and what; between them may be a client's own words."""
    return text if len(text) <= most else f"{text[: most // 2]}…{text[1 - most // 2 :]}"
