"""Compiled grammars at hand, on the ranks and in the run folder, for as long as leases or room allow."""

import asyncio
from typing import Final

from guided_contract.errors import ErrorCode, GuidedError
from guided_sidecar.grammar import artifacts
from guided_sidecar.grammar.prepare.cache import Entry, GrammarCache
from guided_sidecar.grammar.worker_messages import Done
from guided_sidecar.ranks.load_barrier import Rendezvous
from guided_sidecar.settings import Settings

_FLIGHT_LEASE_S: Final = 1.0


class Store:
    """Compiled grammars and the leases on them.

    Parameters
    ----------
    settings
        How many are kept without a lease.
    most_bytes
        What all together may take, those with a lease included.
    rendezvous
        Hears of a grammar that goes.
    """

    def __init__(self, settings: Settings, most_bytes: int, rendezvous: Rendezvous) -> None:
        self.cache = GrammarCache(settings.cache_entries, min(settings.cache_bytes, most_bytes))
        self._most_bytes = most_bytes
        self._folder = settings.pod.grammars_folder
        self._rendezvous = rendezvous

    def land(self, key: str, done: Done) -> Entry:
        """Take in a grammar whose artefact, if it has one, is in the folder.

        Raises
        ------
        GuidedError
            grammar_storage_full: those in use leave it no room.
        """
        # The flight's own lease keeps the grammar until those who waited have taken theirs.
        entry = Entry(key, done, leases=1)
        self.cache.add(entry)
        self._evict()
        if self.cache.size_bytes > self._most_bytes:
            self.cache.remove(key)
            self._discard(entry)
            message = (
                f"the grammars in use fill all {self._most_bytes >> 20} MiB reserved for compiled grammars"
            )
            raise GuidedError(ErrorCode.GRAMMAR_STORAGE_FULL, message, retry_after_s=1)
        asyncio.get_running_loop().call_later(_FLIGHT_LEASE_S, self.release, key)
        return entry

    def retract(self, key: str, done: Done, instead: Done | None = None) -> None:
        """Give up what ranks were told to load before it was proven; `instead`: what they are to load now."""
        self._rendezvous.forget(key)
        if done.artifact is not None and (instead is None or instead.artifact is None):
            artifacts.remove(self._folder, done.artifact)

    def release(self, key: str) -> None:
        """End one lease."""
        entry = self.cache.get(key)
        if entry is not None and entry.leases:
            self.end_lease(entry)

    def end_lease(self, entry: Entry) -> None:
        """End one lease; without any, a grammar stays while there is room."""
        entry.leases -= 1
        if entry.leases:
            return
        self._rendezvous.rest(entry.key)
        self._evict()

    def drop(self, entry: Entry) -> None:
        """Give up a grammar that may be damaged."""
        self.cache.remove(entry.key)
        self._discard(entry)

    def _evict(self) -> None:
        for unused in self.cache.evict():
            self._discard(unused)

    def _discard(self, entry: Entry) -> None:
        self._rendezvous.forget(entry.key)
        if entry.done.artifact is not None:
            artifacts.remove(self._folder, entry.done.artifact)
