"""Compares the digests of the ranks, and ends requests that they disagree about.

All ranks make the same digests, numbered per sequence, and send them by datagrams, which may be lost. A
digest that not every rank has sent in time is counted as lost; only digests that differ are a desync.
"""

import logging
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from guided_contract.errors import ErrorCode
from guided_contract.records import Digests
from guided_contract.wire import End, Failed, ServiceMessage

# Ranks are a step apart, and a sender whose datagram finds the queue full tries for ten seconds.
PATIENCE_S: Final = 30.0
# How long a desync shows although nothing follows from it any more: longer than the operator's polling.
SHOWN_S: Final = 600.0
_MAX_PENDING: Final = 100_000  # digests that wait for other ranks'; more are given up, oldest first
_MAX_NAMES: Final = 32 << 20  # characters of their requests' names, which clients choose
_MAX_ENDED: Final = 4096  # requests remembered as ended: digests of theirs may still arrive

_Key = tuple[int, str, int]  # data-parallel group, request, number
_Sent = tuple[int, int]  # position, digest
_log = logging.getLogger(__name__)


class ApiLink(Protocol):
    """A connection to an API server."""

    def send(self, message: ServiceMessage) -> None:
        """Send without waiting."""


@dataclass(slots=True)
class _Pending:
    since_s: float
    by_rank: dict[int, _Sent] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AgreementState:
    """What has come of comparing, since the service started.

    `desyncs` are by rank; `lost` are digests that not every rank sent in time; `message` says what of it
    still matters, "" if nothing.
    """

    compared: int = 0
    desyncs: Mapping[int, int] = field(default_factory=dict)
    lost: int = 0
    message: str = ""


class DesyncObserver(Protocol):
    """Hears of what comes of comparing."""

    def found(self, request_id: str, ranks: Sequence[int]) -> None:
        """Ranks differed from the others in a request."""


class Consensus:
    """Compares what sampling ranks say, and tells API servers what to end.

    Parameters
    ----------
    ranks
        How many ranks sample one sequence: the tensor-parallel size. As many with consecutive numbers are a
        data-parallel group, and compared with each other alone.
    observer
        Hears of each desync, and of what follows.
    clock
        Monotonic seconds.
    """

    def __init__(
        self,
        ranks: int,
        observer: DesyncObserver,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._observer = observer
        self._expected = ranks
        self._clock = clock
        self._apis: list[ApiLink] = []
        self._pending: OrderedDict[_Key, _Pending] = OrderedDict()  # oldest first
        self._names = 0  # characters in the keys of _pending
        self._ended: OrderedDict[int, None] = OrderedDict()  # by the hash of their names
        self._compared = 0
        self._desyncs: Counter[int] = Counter()
        self._lost = 0
        self._last_desync_s: float | None = None

    @property
    def state(self) -> AgreementState:
        """Everything as it is now."""
        self._give_up_late()
        return AgreementState(self._compared, dict(self._desyncs), self._lost, self._message())

    def connect(self, api: ApiLink) -> None:
        """Take a new API server."""
        self._apis.append(api)

    def disconnect(self, api: ApiLink) -> None:
        """Forget an API server."""
        self._apis.remove(api)

    def restart(self) -> None:
        """Begin anew with a new engine: its ranks have nothing of the old ones' state. Counts stay."""
        self._pending.clear()
        self._names = 0
        self._ended.clear()
        self._last_desync_s = None

    def fail(self, failed: Failed) -> None:
        """Take a rank's word that it gave a sequence up: it ends everywhere, once."""
        if hash(failed.request_id) not in self._ended:
            self._end(failed.request_id, failed.code)

    def receive(self, record: Digests) -> None:
        """Take a rank's digests of one step."""
        for digest in record.digests:
            if hash(digest.request_id) in self._ended:
                continue
            # Ranks of different groups sample different sequences, whatever these are called.
            key = (record.rank // self._expected, digest.request_id, digest.number)
            pending = self._pending.get(key)
            if pending is None:
                pending = self._pending[key] = _Pending(self._clock())
                self._names += len(digest.request_id)
            pending.by_rank[record.rank] = (digest.position, digest.digest)
            if len(pending.by_rank) == self._expected:
                self._forget(key)
                self._compare(digest.request_id, pending.by_rank)
        self._give_up_late()

    def _compare(self, request_id: str, by_rank: Mapping[int, _Sent]) -> None:
        self._compared += 1
        if len(set(by_rank.values())) == 1:
            return
        astray = _astray(by_rank)
        self._desyncs.update(astray)
        self._last_desync_s = self._clock()
        _log.error("ranks disagree about request %s: %s", request_id, _listed(by_rank))
        self._observer.found(request_id, astray)
        self._end(request_id, ErrorCode.RANKS_DESYNCHRONIZED.value)

    def _end(self, request_id: str, code: str) -> None:
        self._ended[hash(request_id)] = None
        if len(self._ended) > _MAX_ENDED:
            self._ended.popitem(last=False)
        for key in [key for key in self._pending if key[1] == request_id]:
            self._forget(key)
        self._send(End(request_id=request_id, code=code))

    def _send(self, message: ServiceMessage) -> None:
        for api in self._apis:
            api.send(message)

    def _give_up_late(self) -> None:
        now = self._clock()
        while self._pending:
            key, pending = next(iter(self._pending.items()))
            fits = len(self._pending) <= _MAX_PENDING and self._names <= _MAX_NAMES
            if fits and now - pending.since_s < PATIENCE_S:
                return
            self._forget(key)
            self._lost += 1

    def _forget(self, key: _Key) -> None:
        del self._pending[key]
        self._names -= len(key[1])

    def _message(self) -> str:
        shown = self._last_desync_s is not None and self._clock() - self._last_desync_s < SHOWN_S
        if not shown:
            return ""
        counts = ", ".join(f"rank {rank}: {count}" for rank, count in sorted(self._desyncs.items()))
        return f"ranks disagreed, and the affected requests were ended ({counts})"


def _astray(by_rank: Mapping[int, _Sent]) -> list[int]:
    """Return the ranks that differ from what most say; where no answer has most, all ranks."""
    (first, most), *others = Counter(by_rank.values()).most_common()
    if others and others[0][1] == most:
        return sorted(by_rank)
    return sorted(rank for rank, sent in by_rank.items() if sent != first)


def _listed(by_rank: Mapping[int, _Sent]) -> str:
    said = (f"rank {r} {digest:08x} at token {position}" for r, (position, digest) in sorted(by_rank.items()))
    return ", ".join(said)
