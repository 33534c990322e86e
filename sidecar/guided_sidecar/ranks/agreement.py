"""Compares the digests of the ranks, and ends requests that they disagree about.

All ranks make the same digests, numbered per sequence, and send them by datagrams, which may be lost. A
digest that not every rank has sent in time is counted as lost; only digests that differ are a desync.
"""

import logging
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

from guided_contract.errors import ErrorCode
from guided_contract.records import Digests
from guided_contract.wire import End, Failed, ServiceMessage

# Ranks are a step apart, and a sender whose datagram finds the queue full tries for ten seconds.
PATIENCE_S: Final = 30.0
# How long a desync shows although nothing follows from it any more: longer than the operator's polling.
SHOWN_S: Final = 600.0
_MAX_PENDING: Final = 100_000  # digests that wait for other ranks'; more are given up, oldest first
_MAX_ENDED: Final = 4096  # requests remembered as ended: digests of theirs may still arrive

_Key = tuple[int, int, int]  # data-parallel group, hash of the request's name, number
_Sent = tuple[int, int]  # position, digest
_log = logging.getLogger(__name__)


class Link(Protocol):
    """A connection to an API server or to a rank."""

    def send(self, message: ServiceMessage) -> None:
        """Send without waiting."""


@dataclass(slots=True)
class AgreementState:
    """What has come of comparing, since the service started.

    `desyncs` are by rank; `lost` are digests that not every rank sent in time; `message` says what of it
    still matters, "" if nothing.
    """

    compared: int = 0
    desyncs: Counter[int] = field(default_factory=Counter)
    lost: int = 0
    message: str = ""


class Agreement:
    """Compares what sampling ranks say, and tells API servers what to end.

    Parameters
    ----------
    ranks
        How many ranks sample one sequence: the tensor-parallel size. As many with consecutive numbers are a
        data-parallel group, and compared with each other alone.
    clock
        Monotonic seconds.
    """

    def __init__(self, ranks: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._expected = ranks
        self._clock = clock
        self._apis: list[Link] = []
        # Since when, and by rank; the oldest first, which a dict finds behind all that were deleted.
        self._pending: OrderedDict[_Key, tuple[float, dict[int, _Sent]]] = OrderedDict()
        self._ended: dict[int, None] = {}  # by the hash of their names
        self._state = AgreementState()
        self._last_desync_s: float | None = None

    @property
    def state(self) -> AgreementState:
        """Everything as it is now."""
        self._give_up_late()
        return replace(self._state, desyncs=self._state.desyncs.copy(), message=self._message())

    def connect(self, api: Link) -> None:
        """Take a new API server."""
        self._apis.append(api)

    def disconnect(self, api: Link) -> None:
        """Forget an API server."""
        self._apis.remove(api)

    def restart(self) -> None:
        """Begin anew with a new engine: its ranks have nothing of the old ones' state. Counts stay."""
        self._pending.clear()
        self._ended.clear()
        self._last_desync_s = None

    def fail(self, failed: Failed) -> None:
        """Take a rank's word that it gave a sequence up: it ends everywhere, once."""
        if hash(failed.request_id) not in self._ended:
            self._end(failed.request_id, failed.code)

    def receive(self, record: Digests) -> None:
        """Take a rank's digests of one step."""
        for digest in record.digests:
            name = hash(digest.request_id)  # which clients choose, and of any length
            if name in self._ended:
                continue
            # Ranks of different groups sample different sequences, whatever these are called.
            key = (record.rank // self._expected, name, digest.number)
            _, by_rank = self._pending.setdefault(key, (self._clock(), {}))
            by_rank[record.rank] = (digest.position, digest.digest)
            if len(by_rank) == self._expected:
                del self._pending[key]
                self._compare(digest.request_id, by_rank)
        self._give_up_late()

    def _compare(self, request_id: str, by_rank: Mapping[int, _Sent]) -> None:
        self._state.compared += 1
        if len(set(by_rank.values())) == 1:
            return
        self._state.desyncs.update(_differing(by_rank))
        self._last_desync_s = self._clock()
        digests = (
            f"rank {rank} {digest:08x} at token {at}" for rank, (at, digest) in sorted(by_rank.items())
        )
        _log.error("ranks disagree about request %s: %s", request_id, ", ".join(digests))
        self._end(request_id, ErrorCode.RANKS_DESYNCHRONIZED.value)

    def _end(self, request_id: str, code: str) -> None:
        name = hash(request_id)
        self._ended[name] = None
        if len(self._ended) > _MAX_ENDED:
            del self._ended[next(iter(self._ended))]
        for key in [key for key in self._pending if key[1] == name]:
            del self._pending[key]
        for api in self._apis:
            api.send(End(request_id=request_id, code=code))

    def _give_up_late(self) -> None:
        now = self._clock()
        while self._pending:
            key, (since_s, _) = next(iter(self._pending.items()))
            if len(self._pending) <= _MAX_PENDING and now - since_s < PATIENCE_S:
                return
            del self._pending[key]
            self._state.lost += 1

    def _message(self) -> str:
        if self._last_desync_s is None or self._clock() - self._last_desync_s >= SHOWN_S:
            return ""
        counts = ", ".join(f"rank {rank}: {count}" for rank, count in sorted(self._state.desyncs.items()))
        return f"ranks disagreed, and the affected requests were ended ({counts})"


def _differing(by_rank: Mapping[int, _Sent]) -> list[int]:
    """Return the ranks that differ from what most say; where no answer has most, all ranks."""
    (first, most), *others = Counter(by_rank.values()).most_common()
    if others and others[0][1] == most:
        return sorted(by_rank)
    return sorted(rank for rank, sent in by_rank.items() if sent != first)
