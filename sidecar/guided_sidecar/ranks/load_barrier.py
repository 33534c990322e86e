"""A load barrier: a grammar is prepared when every sampling rank has loaded it.

The only place where ranks wait for each other, outside their hot loop. A rank that comes back, or starts
anew, is told again what is wanted, so whoever waits for it need not ask again; one that does not answer in
time has an error that says which rank it is, and whether it was never there, is gone or is late.
"""

import asyncio
import dataclasses
import logging
from collections.abc import Callable, Collection, Mapping

from opentelemetry.context import Context

from guided_contract.errors import ErrorCode, GuidedError
from guided_contract.fingerprint import differing
from guided_contract.wire import Backend, Hello, Load, Loaded, Unload
from guided_sidecar.ranks.agreement import Link

_log = logging.getLogger(__name__)


@dataclasses.dataclass(slots=True)
class _Rank:
    link: Link
    hello: Hello
    has: dict[str, bool] = dataclasses.field(default_factory=dict)  # by key; False: asked to load it
    # Answers still to come to a Load that an Unload has followed: they say nothing of a later Load.
    outdated: list[str] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(slots=True)
class _Wanted:
    load: Load
    tokenizer: Mapping[Backend, str]  # that it was compiled for
    trace: Context  # of who first asked for it
    failure: str = ""
    resting: bool = False  # loaded, but no request uses it


class LoadBarrier:
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

    def connect(self, rank: int, link: Link, hello: Hello) -> None:
        """Take a rank's new connection in place of an older one, and send it the grammars in use.

        With the first rank of another engine start on a node, those of the one before are gone: none of them
        will sample for the requests to come, connected though they may still be.
        """
        for number, each in list(self._ranks.items()):
            if each.hello.node == hello.node and each.hello.boot != hello.boot:
                del self._ranks[number]
        self._known.add(rank)
        self._ranks[rank] = _Rank(link, hello)
        for wanted in self._wanted.values():
            if not wanted.resting:
                _ask(self._ranks[rank], wanted)
        self._notify()

    def disconnect(self, rank: int, link: Link) -> None:
        """Forget a rank's connection, unless a newer one has taken its place."""
        current = self._ranks.get(rank)
        if current is not None and current.link is link:
            del self._ranks[rank]
            self._notify()

    def answer(self, rank: int, link: Link, loaded: Loaded) -> None:
        """Take a rank's answer to Load; one for a key that is no longer wanted is ignored."""
        current = self._ranks.get(rank)
        if current is None or current.link is not link:
            return
        if loaded.key in current.outdated:
            current.outdated.remove(loaded.key)
            return
        wanted = self._wanted.get(loaded.key)
        if wanted is None:
            return
        self._on_loaded(rank, wanted.load, loaded, wanted.trace)
        if loaded.error:
            _log.warning("rank %d could not load %s: %s", rank, loaded.key, loaded.error)
            wanted.failure = f"rank {rank}: {loaded.error}"
            current.has.pop(loaded.key, None)
        else:
            current.has[loaded.key] = True
        self._notify()

    def check(self, tokenizer: Mapping[Backend, str]) -> None:
        """Check that no connected rank has another tokenizer than this one, which grammars are compiled for.

        Raises
        ------
        GuidedError
            grammar_tokenizers_differ: one has.
        """
        others = [
            number for number, each in self._ranks.items() if differing(tokenizer, each.hello.tokenizer)
        ]
        if others:
            what = "using a different tokenizer than the grammar service"
            raise _retryable(ErrorCode.GRAMMAR_TOKENIZERS_DIFFER, others, what)

    async def ensure(self, load: Load, tokenizer: Mapping[Backend, str], trace: Context) -> None:
        """Wait until every sampling rank has loaded a grammar. The caller sets the deadline.

        Ranks are asked once for all who wait; one with another tokenizer than the grammar's is not.

        Raises
        ------
        GuidedError
            grammar_load_failed: a rank could not. Another call asks that rank again. Also as `check` does.
        """
        wanted = self._wanted.get(load.key)
        if wanted is None or wanted.failure:
            wanted = self._wanted[load.key] = _Wanted(load, tokenizer, trace)
        wanted.resting = False
        for rank in self._ranks.values():
            _ask(rank, wanted)
        while not self.is_loaded(load.key):
            self.check(tokenizer)
            if wanted.failure or self._wanted.get(load.key) is not wanted:
                message = f"the grammar could not be loaded: {wanted.failure or 'it was given up'}"
                raise GuidedError(ErrorCode.GRAMMAR_LOAD_FAILED, message)
            await self._changed.wait()

    def is_loaded(self, key: str) -> bool:
        """Return whether every expected rank is connected and has loaded `key`."""
        return len(self._ranks) >= self._expected and all(rank.has.get(key) for rank in self._ranks.values())

    def too_late(self, key: str, limit: str) -> GuidedError:
        """Return the error for a request whose deadline passed; `limit` is its length as text ("10 s").

        What cannot be cured by waiting a little longer comes first.
        """
        absent = set(range(self._expected)) - self._ranks.keys()
        if never := absent - self._known:
            return _retryable(ErrorCode.GRAMMAR_RANKS_NOT_READY, never, f"not connected after {limit}")
        if absent:
            what = f"disconnected and did not reconnect within {limit}"
            return _retryable(ErrorCode.GRAMMAR_RANK_GONE, absent, what)
        slow = [number for number, rank in self._ranks.items() if not rank.has.get(key)]
        what = f"slow: the grammar was not loaded within {limit}"
        return _retryable(ErrorCode.GRAMMAR_RANK_LATE, slow, what)

    def rest(self, key: str) -> None:
        """Note that no request uses a grammar now: ranks keep it, but who reconnects need not load it."""
        if key in self._wanted:
            self._wanted[key].resting = True

    def forget(self, key: str) -> None:
        """Have the ranks drop a grammar that no request uses."""
        self._wanted.pop(key, None)
        for rank in self._ranks.values():
            if key in rank.has:
                rank.link.send(Unload(key=key))
                if not rank.has.pop(key):
                    rank.outdated.append(key)
        self._notify()

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


def _ask(rank: _Rank, wanted: _Wanted) -> None:
    if wanted.load.key not in rank.has and not differing(wanted.tokenizer, rank.hello.tokenizer):
        rank.has[wanted.load.key] = False
        rank.link.send(wanted.load)


def _retryable(code: ErrorCode, ranks: Collection[int], what: str) -> GuidedError:
    who = ", ".join(map(str, sorted(ranks)))
    who = f"rank {who} is" if len(ranks) == 1 else f"ranks {who} are"
    return GuidedError(code, f"{who} {what}", retry_after_s=1)
