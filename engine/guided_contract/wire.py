"""Messages on the sidecar's stream socket: msgpack, each frame after its length.

A frame is a 4-byte little-endian length and so many bytes of msgpack. The first message on a connection
is the client's Hello; the service answers Welcome. Every other message may come at any time.

========  ==========================================  ==============================================
client    sends                                       receives
========  ==========================================  ==============================================
api       Prepare, Release                            Prepared, Proven, Refused, End
rank      Loaded, Failed, Compare                     Load, Unload
others    -                                           -
========  ==========================================  ==============================================
"""

import asyncio
import struct
from typing import Annotated, Any, Final, Literal, TypeAlias, TypeVar

import msgspec

from guided_contract import backends
from guided_contract.choices import UnsupportedKeywords, Whitespace
from guided_contract.counting import Position
from guided_contract.errors import MALFORMED, ErrorCode
from guided_contract.trace_context import Trace, Tracestate

MAX_FRAME_BYTES: Final = 4 << 20  # a longer frame closes the connection, unread
LENGTH: Final = struct.Struct("<I")
_T = TypeVar("_T")

# What protobuf's signed 64-bit fields hold: a larger one fails the export of a whole batch of spans.
Natural = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
# A list or mapping of a client's; a value costs more memory than the bytes that announce it.
Few: Final = msgspec.Meta(max_length=256)
Kind = Literal["json", "json_object", "regex", "choice", "grammar", "structural_tag"]
Backend: TypeAlias = backends.Backend
Role = Literal["launcher", "api", "core", "rank"]


class Message(msgspec.Struct, frozen=True, tag=True):
    """Base of all messages; the type's name is the tag, unknown fields are ignored."""


class Patch(msgspec.Struct, frozen=True, kw_only=True):
    """One change to vLLM, as its process found it."""

    name: str
    state: Literal["Applied", "Skipped", "Failed"]
    reason: str = ""


class Hello(Message, frozen=True, kw_only=True):
    """A process of the engine introduces itself; also what makes the plugin count as active.

    `samples`: whether a worker samples (last pipeline stage). `rank`: its number among those that do, of all
    engine cores; of another worker, its rank in its engine. `boot`: the same for all processes of one engine
    start (made by the launcher). `node`: that of a rank whose sidecar speaks for it, else 0.
    """

    role: Role
    pid: int
    boot: str
    rank: int | None = None
    samples: bool = False
    versions: Annotated[dict[str, str], Few] = {}  # vllm, grammar libraries, guidedmodel, modelRunner
    patches: Annotated[list[Patch], Few] = []
    unsupported: str = ""  # launcher only: why vLLM was left untouched
    scheduling: Literal["", "Async", "Sync"] = ""  # rank only: how its engine schedules
    speculation: str = ""  # rank only: vLLM's name of the method that it resolved, "" without speculation
    node: Natural = 0
    tokenizer: Annotated[dict[Backend, str], Few] = {}  # rank that samples: see fingerprint


class Welcome(Message, frozen=True, kw_only=True):
    """The service's answer to Hello."""


class Prepare(Message, frozen=True, kw_only=True):
    """Compile, load and prove a grammar on every rank.

    `id` is the connection's own, and names the lease. `spec`: the text of the schema (json), pattern (regex),
    EBNF, Lark (grammar) or tag (structural_tag), a JSON array of strings (choice), "" (json_object). `name`:
    of a grammar that the pod has, in place of both. None of the others: as the pod is configured.
    """

    id: int
    kind: Kind = "json"
    spec: str = ""
    name: str | None = None
    timeout_s: float
    backend: Backend | None = None
    whitespace: Whitespace | None = None
    unsupported_keywords: UnsupportedKeywords | None = None
    traceparent: str | None = None
    tracestate: Tracestate | None = None


class Release(Message, frozen=True, kw_only=True):
    """The request of Prepare `id` has ended, or its client has gone: what it waits for or holds ends."""

    id: int


class Prepared(Message, frozen=True, kw_only=True):
    """Every sampling rank has loaded `key`; it stays loaded until Release.

    Not `is_proven`: nothing of an answer may be seen until Proven, or Refused, which ends the lease.
    `kind`, `spec`: of a named grammar. `unenforced`: JSONPaths in its text of what was allowed to be ignored.
    """

    id: int
    key: str
    backend: Backend
    is_proven: bool = True
    kind: Kind | None = None
    spec: str = ""
    unenforced: Annotated[list[str], Few] = []


class Proven(Message, frozen=True, kw_only=True):
    """The grammar of Prepare `id` is proven; ranks have what `backend` compiled, perhaps not Prepared's."""

    id: int
    backend: Backend


class Refused(Message, frozen=True, kw_only=True):
    """The grammar of Prepare `id` cannot be used; fields as in errors.GuidedError."""

    id: int
    code: ErrorCode
    message: str
    path: str | None = None
    retry_after_s: float | None = None


class Load(Message, frozen=True, kw_only=True):
    """A rank is to load a grammar that a worker has compiled, in place of another that it has as `key`.

    `spec`: what it is compiled of, in the library's own form. `positions`: bounds that ranks count.
    `whitespace`: characters at most between two tokens of JSON; None: any number.
    `is_tagged`: of a structural tag.
    """

    key: str
    backend: Backend
    spec: str
    positions: list[Position] = []
    whitespace: Natural | None = None
    is_tagged: bool = False


class Unload(Message, frozen=True, kw_only=True):
    """A rank may forget `key`; no admitted request uses it."""

    key: str


class Loaded(Message, frozen=True, kw_only=True):
    """A rank's answer to Load. `error` is empty on success. Times are CLOCK_REALTIME nanoseconds."""

    key: str
    error: str = ""
    start_ns: Natural = 0
    end_ns: Natural = 0


class Failed(Message, frozen=True, kw_only=True):
    """A rank gave a sequence up. Only the output rank's word reaches the engine core by itself.

    `request_id` is the engine core's; `code` one of errors.ErrorCode; `key` its grammar's, "" without one.
    """

    request_id: str
    code: str
    key: str = ""


class Compare(Message, frozen=True, kw_only=True):
    """A rank's digests (records.encode), of a node whose datagrams do not reach the service."""

    record: bytes


class End(Message, frozen=True, kw_only=True):
    """An API server is to end a request, if it has it, with an error; fields as in Failed."""

    request_id: str
    code: str


class Ticket(Trace, frozen=True, kw_only=True):
    """What a guided request carries to the ranks in `extra_args[TICKET_ARG]`, as a plain mapping."""

    key: str
    backend: Backend
    reasoning_ended: bool | None = None  # by the prompt, says the engine core; None: ask the parser
    reasoning_arguments: dict[str, Any] = {}  # noqa: RUF012 - a Struct copies it


ClientMessage = Hello | Prepare | Release | Loaded | Failed | Compare
ServiceMessage = Welcome | Prepared | Proven | Refused | Load | Unload | End


class WireError(Exception):
    """A frame that is too long, is not msgpack or is no known message. The connection is of no more use."""


_encoder = msgspec.msgpack.Encoder()
_client_decoder: msgspec.msgpack.Decoder[ClientMessage] = msgspec.msgpack.Decoder(ClientMessage)
_service_decoder: msgspec.msgpack.Decoder[ServiceMessage] = msgspec.msgpack.Decoder(ServiceMessage)


def frame(message: msgspec.Struct) -> bytes:
    """Return a message as length and body, ready to send; WireError: it exceeds MAX_FRAME_BYTES."""
    body = _encoder.encode(message)
    if len(body) > MAX_FRAME_BYTES:
        raise WireError(f"a frame of {len(body)} bytes exceeds {MAX_FRAME_BYTES}")
    return LENGTH.pack(len(body)) + body


def body_length(header: bytes) -> int:
    """Return the length that a 4-byte header announces.

    Raises
    ------
    WireError
        The length exceeds MAX_FRAME_BYTES; nothing of the body may be read.
    """
    length: int = LENGTH.unpack(header)[0]
    if length > MAX_FRAME_BYTES:
        raise WireError(f"a frame of {length} bytes exceeds {MAX_FRAME_BYTES}")
    return length


async def read(reader: asyncio.StreamReader) -> bytes:
    """Return the body of the next frame; EOFError: the connection has ended, WireError as `body_length`."""
    return await reader.readexactly(body_length(await reader.readexactly(LENGTH.size)))


def decode_client_message(body: bytes) -> ClientMessage:
    """Decode what the service received; WireError: it is none of ClientMessage."""
    return _decoded(_client_decoder, body)


def decode_service_message(body: bytes) -> ServiceMessage:
    """Decode what a client received; WireError: it is none of ServiceMessage."""
    return _decoded(_service_decoder, body)


def _decoded(decoder: msgspec.msgpack.Decoder[_T], body: bytes) -> _T:
    try:
        return decoder.decode(body)
    except MALFORMED as error:
        raise WireError(str(error)[:200]) from error  # it may quote the whole message
