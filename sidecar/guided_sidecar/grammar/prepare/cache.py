"""Compiled grammars at hand, on the ranks and in the run folder, for as long as leases or room allow."""

import collections
import dataclasses
from pathlib import Path

from guided_contract.errors import ErrorCode, GuidedError
from guided_sidecar.grammar import artifacts
from guided_sidecar.grammar.worker_messages import Done
from guided_sidecar.ranks.load_barrier import Rendezvous


@dataclasses.dataclass(slots=True)
class Entry:
    """One compiled grammar. `leases` counts who may use it, requests that still wait for ranks included."""

    key: str
    done: Done
    leases: int = 0


class GrammarCache:
    """Least recently used first out, but never one with a lease.

    Parameters
    ----------
    most_entries, most_bytes
        Kept at most, where leases allow.
    room_bytes
        What all together may take, those with a lease included.
    folder
        Where artefacts are.
    rendezvous
        Hears of a grammar that goes.
    """

    def __init__(
        self, most_entries: int, most_bytes: int, room_bytes: int, folder: Path, rendezvous: Rendezvous
    ) -> None:
        self._most_entries = most_entries
        self._most_bytes = min(most_bytes, room_bytes)
        self._room_bytes = room_bytes
        self._folder = folder
        self._rendezvous = rendezvous
        self.evictions = 0
        self.size_bytes = 0  # of all entries together
        self._entries: collections.OrderedDict[str, Entry] = collections.OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def leased_bytes(self) -> int:
        """Of the entries with a lease, which nothing evicts."""
        return sum(entry.done.size_bytes for entry in self._entries.values() if entry.leases)

    @property
    def leases(self) -> int:
        """Leases on all entries together."""
        return sum(entry.leases for entry in self._entries.values())

    def get(self, key: str) -> Entry | None:
        """Return an entry and count it as used."""
        entry = self._entries.get(key)
        if entry is not None:
            self._entries.move_to_end(key)
        return entry

    def land(self, entry: Entry) -> None:
        """Take in a grammar whose artefact, if it has one, is in the folder.

        Raises
        ------
        GuidedError
            grammar_storage_full: those in use leave it no room.
        """
        self._entries[entry.key] = entry
        self.size_bytes += entry.done.size_bytes
        self._evict()
        if self.size_bytes > self._room_bytes:
            self.drop(entry)
            message = (
                f"the grammars in use fill all {self._room_bytes >> 20} MiB reserved for compiled grammars"
            )
            raise GuidedError(ErrorCode.GRAMMAR_STORAGE_FULL, message, retry_after_s=1)

    def retract(self, key: str, done: Done, instead: Done | None = None) -> None:
        """Give up what ranks were told to load before it was proven; `instead`: what they are to load now."""
        self._rendezvous.forget(key)
        if done.artifact is not None and (instead is None or instead.artifact is None):
            artifacts.remove(self._folder, done.artifact)

    def release(self, key: str) -> None:
        """End one lease."""
        entry = self.get(key)
        if entry is not None and entry.leases:
            self.end_lease(entry)

    def end_lease(self, entry: Entry) -> None:
        """End one lease; without any, a grammar stays while there is room."""
        entry.leases -= 1
        if not entry.leases:
            self._rendezvous.rest(entry.key)
            self._evict()

    def drop(self, entry: Entry) -> None:
        """Give up a grammar, on the ranks too, unless it is gone."""
        if self._entries.pop(entry.key, None) is not None:
            self.size_bytes -= entry.done.size_bytes
            self.retract(entry.key, entry.done)

    def _evict(self) -> None:
        for entry in [entry for entry in self._entries.values() if not entry.leases]:
            if len(self._entries) <= self._most_entries and self.size_bytes <= self._most_bytes:
                return
            self.drop(entry)
            self.evictions += 1
