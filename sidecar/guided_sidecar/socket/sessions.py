"""What each role may say, and what ends when its connection does: an API server's leases, a rank's place."""

import asyncio
import logging
import sys
from typing import Any, Final

import msgspec

from guided_contract import records
from guided_contract.errors import ErrorCode, GuidedError
from guided_contract.wire import (
    ClientMessage,
    Compare,
    Failed,
    Loaded,
    Prepare,
    Prepared,
    Proven,
    Refused,
    Release,
    WireError,
)
from guided_sidecar.grammar.prepare.named_grammars import NamedGrammars
from guided_sidecar.grammar.prepare.preparer import Preparer
from guided_sidecar.ranks.agreement import Agreement
from guided_sidecar.ranks.load_barrier import LoadBarrier
from guided_sidecar.socket.server import Peer

_log = logging.getLogger(__name__)
_REQUEST_BYTES: Final = 8 << 10  # of one that waits, besides its text: task, span, place in queues


class Room:
    """What requests that wait for their grammars may hold in memory, those of all API servers together.

    At most `most_bytes`; a request that is alone may exceed it.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._used_bytes = 0

    def take(self, size_bytes: int) -> bool:
        """Return whether there is room, and take it."""
        if self._used_bytes and self._used_bytes + size_bytes > self._most_bytes:
            return False
        self._used_bytes += size_bytes
        return True

    def give(self, size_bytes: int) -> None:
        """Give back what was taken."""
        self._used_bytes -= size_bytes


class ApiSession:
    """An API server: prepares grammars, and holds leases until it releases them or is gone.

    A prepare for which `room` has none is refused; `agreement` tells the server what to end.
    """

    def __init__(
        self, peer: Peer, preparer: Preparer, named: NamedGrammars, room: Room, agreement: Agreement
    ) -> None:
        self._peer = peer
        self._preparer = preparer
        self._named = named
        self._room = room
        self._agreement = agreement
        agreement.connect(peer)
        self._pending: dict[int, tuple[asyncio.Task[None], int]] = {}  # and what it takes of the room
        self._leases: dict[int, str] = {}

    def receive(self, message: ClientMessage) -> None:
        """Take a Prepare or Release."""
        match message:
            case Prepare():
                self._begin(message)
            case Release(id=number):
                self._end(number)
            case _:
                raise WireError(f"an API server does not send {type(message).__name__}")

    def closed(self) -> None:
        """Cancel what is under way, and end all leases."""
        self._agreement.disconnect(self._peer)
        for number in [*self._pending, *self._leases]:
            self._end(number)

    def _begin(self, request: Prepare) -> None:
        if request.id in self._pending or request.id in self._leases:
            raise WireError(f"id {request.id} is in use")
        size_bytes = _REQUEST_BYTES + sys.getsizeof(request.spec)
        if not self._room.take(size_bytes):
            message = "too many requests are waiting for their grammars; retry later"
            error = GuidedError(ErrorCode.GRAMMAR_SERVICE_UNAVAILABLE, message, retry_after_s=1)
            self._peer.send(_refused(request.id, error))
            return
        self._pending[request.id] = asyncio.create_task(self._prepare(request)), size_bytes

    def _end(self, number: int) -> None:
        """End a prepare under way or a lease; an unknown number ended before, or with another service."""
        task = self._ended(number)
        if task is not None:
            task.cancel()
        key = self._leases.pop(number, None)
        if key is not None:
            self._preparer.release(key)

    def _ended(self, number: int) -> asyncio.Task[None] | None:
        """Forget a prepare under way, if there is one, and return it."""
        task, size_bytes = self._pending.pop(number, (None, 0))
        self._room.give(size_bytes)
        return task

    async def _prepare(self, request: Prepare) -> None:
        is_told = False  # before it was proven
        named: dict[str, Any] = {}  # what is said of a named grammar besides

        def loaded(prepared: Prepared) -> None:
            nonlocal is_told
            is_told = True
            self._peer.send(msgspec.structs.replace(prepared, **named))

        try:
            if request.name is not None:
                named["kind"], named["spec"] = self._named.resolve(request.name)
                request = msgspec.structs.replace(request, **named)
            prepared = await self._preparer.prepare(request, loaded)
        except GuidedError as error:
            refusal = error
        except Exception:  # noqa: BLE001 - a fault of ours costs this request alone, and the client an answer
            _log.exception("preparing the grammar failed")
            refusal = GuidedError(ErrorCode.GRAMMAR_SERVICE_UNAVAILABLE, retry_after_s=1)
        else:
            if self._ended(request.id) is None:
                self._preparer.release(prepared.key)  # cancelled as it was done
                return
            self._leases[request.id] = prepared.key
            proven = Proven(id=request.id, backend=prepared.backend)
            self._peer.send(proven if is_told else msgspec.structs.replace(prepared, **named))
            return
        self._ended(request.id)
        self._peer.send(_refused(request.id, refusal))


class RankSession:
    """A sampling rank: answers Load, and says what it gives up."""

    def __init__(
        self, peer: Peer, rank: int, load_barrier: LoadBarrier, agreement: Agreement, preparer: Preparer
    ) -> None:
        self._peer = peer
        self._rank = rank
        self._load_barrier = load_barrier
        self._agreement = agreement
        self._preparer = preparer
        load_barrier.connect(rank, peer, peer.hello)

    def receive(self, message: ClientMessage) -> None:
        """Take a Loaded or Failed, from another node also a Compare."""
        match message:
            case Compare(record=record) if self._peer.hello.node:
                self._compare(record)
            case Loaded():
                self._load_barrier.answer(self._rank, self._peer, message)
            case Failed():
                self._agreement.fail(message)
                if message.code == ErrorCode.SEQUENCE_SLOW:
                    self._preparer.found_slow(message.key)
            case _:
                raise WireError(f"a rank does not send {type(message).__name__}")

    def _compare(self, record: bytes) -> None:
        try:
            digests = records.decode(record)
        except ValueError as error:
            raise WireError(f"not a record: {error}") from error
        if not isinstance(digests, records.Digests) or digests.rank != self._rank:
            raise WireError("a rank sends digests of its own, and no other record")
        self._agreement.receive(digests)

    def closed(self) -> None:
        """Give up the rank's place."""
        self._load_barrier.disconnect(self._rank, self._peer)


class SilentSession:
    """A process that is there and says nothing more: launcher, engine core, a rank that does not sample."""

    def receive(self, message: ClientMessage) -> None:
        """Refuse every message."""
        raise WireError(f"unexpected {type(message).__name__}")

    def closed(self) -> None:
        """Nothing ends with it."""


def _refused(number: int, error: GuidedError) -> Refused:
    return Refused(
        id=number,
        code=error.code,
        message=error.message,
        path=error.path,
        retry_after_s=error.retry_after_s,
    )
