"""Where the ranks agree: a grammar is prepared when every sampling rank has loaded it.

A rank that reconnects is told again what is wanted; what it does not answer for is missing, and who waits
for it is refused at the deadline. The only place where ranks wait for each other, outside their hot loop.
"""

import asyncio
import dataclasses
import logging
from collections.abc import Callable
from typing import Protocol

from guided_contract.errors import ErrorCode, GuidedError
from guided_contract.wire import Load, Loaded, ServiceMessage, Unload

_log = logging.getLogger(__name__)


class RankLink(Protocol):
    """A connection to a sampling rank."""

    def send(self, message: ServiceMessage) -> None:
        """Send without waiting."""


@dataclasses.dataclass(slots=True)
class _Rank:
    link: RankLink
    asked: set[str] = dataclasses.field(default_factory=set)
    loaded: set[str] = dataclasses.field(default_factory=set)


@dataclasses.dataclass(slots=True)
class _Wanted:
    load: Load
    failure: str = ""
    resting: bool = False  # loaded, but no request uses it


class Rendezvous:
    """Who is connected, what each rank has loaded, and what is wanted.

    Parameters
    ----------
    expected
        Number of sampling ranks.
    on_loaded
        Told of each answer to a Load that carried a traceparent: rank, the load, the answer.
    """

    def __init__(self, expected: int, on_loaded: Callable[[int, Load, Loaded], None]) -> None:
        self._expected = expected
        self._on_loaded = on_loaded
        self._ranks: dict[int, _Rank] = {}
        self._wanted: dict[str, _Wanted] = {}
        self._changed = asyncio.Event()

    def connect(self, rank: int, link: RankLink) -> None:
        """Take a rank's new connection in place of an older one, and tell it what is wanted."""
        self._ranks[rank] = _Rank(link)
        for wanted in self._wanted.values():
            if not wanted.resting:
                self._ask(self._ranks[rank], wanted.load)
        self._notify()

    def disconnect(self, rank: int, link: RankLink) -> None:
        """Forget a rank's connection, unless a newer one has taken its place."""
        current = self._ranks.get(rank)
        if current is not None and current.link is link:
            del self._ranks[rank]
            self._notify()

    def answer(self, rank: int, link: RankLink, loaded: Loaded) -> None:
        """Take a rank's answer to Load; one for a key that is no longer wanted is ignored."""
        current = self._ranks.get(rank)
        wanted = self._wanted.get(loaded.key)
        if current is None or current.link is not link or wanted is None:
            return
        self._on_loaded(rank, wanted.load, loaded)
        current.asked.discard(loaded.key)
        if loaded.error:
            _log.warning("rank %d could not load %s: %s", rank, loaded.key, loaded.error)
            wanted.failure = f"rank {rank}: {loaded.error}"
        else:
            current.loaded.add(loaded.key)
        self._notify()

    async def ensure(self, load: Load) -> None:
        """Wait until every sampling rank has loaded a grammar. The caller sets the deadline.

        Raises
        ------
        GuidedError
            grammar_load_failed: a rank could not. Another call asks that rank again.
        """
        wanted = self._wanted.get(load.key)
        if wanted is None or wanted.failure:
            wanted = self._wanted[load.key] = _Wanted(load)
        wanted.resting = False
        for rank in self._ranks.values():
            self._ask(rank, load)
        while not self.is_loaded(load.key):
            if wanted.failure:
                message = f"the grammar could not be loaded: {wanted.failure}"
                raise GuidedError(ErrorCode.GRAMMAR_LOAD_FAILED, message)
            await self._changed.wait()

    def is_loaded(self, key: str) -> bool:
        """Return whether every expected rank is connected and has loaded `key`."""
        return len(self._ranks) >= self._expected and all(key in rank.loaded for rank in self._ranks.values())

    def missing(self, key: str) -> str:
        """Return in words who has not loaded `key`."""
        if len(self._ranks) < self._expected:
            return f"{len(self._ranks)} of {self._expected} ranks are connected"
        late = sorted(number for number, rank in self._ranks.items() if key not in rank.loaded)
        return f"ranks {late} have not loaded the grammar"

    def rest(self, key: str) -> None:
        """Note that no request uses a grammar now: ranks keep it, but who reconnects need not load it."""
        wanted = self._wanted.get(key)
        if wanted is not None:
            wanted.resting = True

    def forget(self, key: str) -> None:
        """Have the ranks drop a grammar that no request uses."""
        self._wanted.pop(key, None)
        for rank in self._ranks.values():
            if key in rank.loaded or key in rank.asked:
                rank.link.send(Unload(key=key))
            rank.loaded.discard(key)
            rank.asked.discard(key)
        self._notify()

    def _ask(self, rank: _Rank, load: Load) -> None:
        if load.key not in rank.loaded and load.key not in rank.asked:
            rank.asked.add(load.key)
            rank.link.send(load)

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
