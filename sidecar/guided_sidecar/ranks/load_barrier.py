"""A load barrier: a grammar is prepared when every sampling rank has loaded it.

The only place where ranks wait for each other, outside their hot loop. A rank that comes back, or starts
anew, is told again what is wanted, so whoever waits for it need not ask again; one that does not answer in
time has an error that says which rank it is, and whether it was never there, is gone or is late.
"""

import asyncio
import dataclasses
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from opentelemetry.context import Context

from guided_contract.errors import ErrorCode, GuidedError
from guided_contract.fingerprint import differing
from guided_contract.wire import Backend, Hello, Load, Loaded, ServiceMessage, Unload

_log = logging.getLogger(__name__)


class RankLink(Protocol):
    """A connection to a sampling rank."""

    def send(self, message: ServiceMessage) -> None:
        """Send without waiting."""


@dataclasses.dataclass(slots=True)
class _Rank:
    link: RankLink
    hello: Hello
    asked: set[str] = dataclasses.field(default_factory=set)
    loaded: set[str] = dataclasses.field(default_factory=set)
    # Answers still to come to a Load that an Unload has followed: they say nothing of a later Load.
    outdated: list[str] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(slots=True)
class _Wanted:
    load: Load
    tokenizer: Mapping[Backend, str]  # that it was compiled for
    trace: Context  # of who first asked for it
    failure: str = ""
    resting: bool = False  # loaded, but no request uses it


class Rendezvous:
    """Who is connected, what each rank has loaded, and what is wanted.

    Parameters
    ----------
    expected
        Number of sampling ranks.
    on_loaded
        Told of each answer to a Load: rank, the load, the answer, and the trace context of who asked for it.
    """

    def __init__(self, expected: int, on_loaded: Callable[[int, Load, Loaded, Context], None]) -> None:
        self._expected = expected
        self._on_loaded = on_loaded
        self._ranks: dict[int, _Rank] = {}
        self._known: set[int] = set()  # ranks that have ever been connected
        self._wanted: dict[str, _Wanted] = {}
        self._changed = asyncio.Event()

    def connect(self, rank: int, link: RankLink, hello: Hello) -> None:
        """Take a rank's new connection in place of an older one, and send it the grammars in use.

        With the first rank of another engine start on a node, those of the one before are gone: none of them
        will sample for the requests to come, connected though they may still be.
        """
        before = [
            number
            for number, each in self._ranks.items()
            if each.hello.node == hello.node and each.hello.boot != hello.boot
        ]
        for number in {rank, *before}:
            self._ranks.pop(number, None)
        self._known.add(rank)
        self._ranks[rank] = _Rank(link, hello)
        for wanted in self._wanted.values():
            if not wanted.resting:
                self._ask(self._ranks[rank], wanted)
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
        if current is None or current.link is not link:
            return
        if loaded.key in current.outdated:
            current.outdated.remove(loaded.key)
            return
        if wanted is None:
            return
        self._on_loaded(rank, wanted.load, loaded, wanted.trace)
        current.asked.discard(loaded.key)
        if loaded.error:
            _log.warning("rank %d could not load %s: %s", rank, loaded.key, loaded.error)
            wanted.failure = f"rank {rank}: {loaded.error}"
        else:
            current.loaded.add(loaded.key)
        self._notify()

    def check(self, tokenizer: Mapping[Backend, str]) -> None:
        """Check that no rank has another tokenizer than this one, which grammars are compiled for.

        Raises
        ------
        GuidedError
            grammar_tokenizers_differ: one has; as long as it is connected.
        """
        others = [
            number for number, each in self._ranks.items() if differing(tokenizer, each.hello.tokenizer)
        ]
        if others:
            who = f"{_numbered(others)} using a different tokenizer than the grammar service"
            raise _retryable(ErrorCode.GRAMMAR_TOKENIZERS_DIFFER, who)

    async def ensure(self, load: Load, tokenizer: Mapping[Backend, str], trace: Context) -> None:
        """Wait until every sampling rank has loaded a grammar. The caller sets the deadline.

        Ranks are asked once for all who wait. One that has another tokenizer than the one
        that it was compiled for is not sent it.

        Raises
        ------
        GuidedError
            grammar_load_failed: a rank could not. Another call asks that rank again. Also as `check` does.
        """
        wanted = self._want(load, tokenizer, trace)
        while not self.is_loaded(load.key):
            self.check(tokenizer)
            if wanted.failure:
                message = f"the grammar could not be loaded: {wanted.failure}"
                raise GuidedError(ErrorCode.GRAMMAR_LOAD_FAILED, message)
            await self._changed.wait()

    def _want(self, load: Load, tokenizer: Mapping[Backend, str], trace: Context) -> _Wanted:
        """Ask ranks for a grammar that they have not been asked for, or could not load."""
        wanted = self._wanted.get(load.key)
        if wanted is None or wanted.failure:
            wanted = self._wanted[load.key] = _Wanted(load, tokenizer, trace)
        wanted.resting = False
        for rank in self._ranks.values():
            self._ask(rank, wanted)
        return wanted

    def is_loaded(self, key: str) -> bool:
        """Return whether every expected rank is connected and has loaded `key`."""
        return len(self._ranks) >= self._expected and all(key in rank.loaded for rank in self._ranks.values())

    def too_late(self, key: str, limit: str) -> GuidedError:
        """Return the error for a request whose deadline passed; `limit` is its length as text ("10 s").

        What cannot be cured by waiting a little longer comes first.
        """
        absent = set(range(self._expected)) - self._ranks.keys()
        slow = {number for number, rank in self._ranks.items() if key not in rank.loaded}
        gone = absent & self._known
        if absent - gone:
            who = f"{_numbered(absent - gone)} not connected after {limit}"
            return _retryable(ErrorCode.GRAMMAR_RANKS_NOT_READY, who)
        if gone:
            who = f"{_numbered(gone)} disconnected and did not reconnect within {limit}"
            return _retryable(ErrorCode.GRAMMAR_RANK_GONE, who)
        return _retryable(
            ErrorCode.GRAMMAR_RANK_LATE, f"{_numbered(slow)} slow: the grammar was not loaded within {limit}"
        )

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
            if key in rank.asked:
                rank.outdated.append(key)
            rank.loaded.discard(key)
            rank.asked.discard(key)
        self._notify()

    def _ask(self, rank: _Rank, wanted: _Wanted) -> None:
        load = wanted.load
        if load.key in rank.loaded or load.key in rank.asked:
            return
        if not differing(wanted.tokenizer, rank.hello.tokenizer):
            rank.asked.add(load.key)
            rank.link.send(load)

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


def _numbered(ranks: Iterable[int]) -> str:
    numbers = sorted(ranks)
    return f"rank {numbers[0]} is" if len(numbers) == 1 else f"ranks {', '.join(map(str, numbers))} are"


def _retryable(code: ErrorCode, message: str) -> GuidedError:
    return GuidedError(code, message, retry_after_s=1)
