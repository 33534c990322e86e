"""Compiled grammars at hand, on the ranks and in the run folder, for as long as leases or room allow."""

import collections
import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from guided_contract.errors import ErrorCode, GuidedError
from guided_sidecar.grammar import artifacts
from guided_sidecar.grammar.worker_messages import Done
from guided_sidecar.ranks.load_barrier import LoadBarrier

# A walk came to the end of a text, which was judged; none did in its time; or the grammar was refused.
ProofResult = Literal["finished", "unfinished", "refused"]


@dataclasses.dataclass(frozen=True, slots=True)
class CacheState:
    """Prepared grammars, and what became of all that was asked for since the service started.

    `answers` are prepares by how their grammar was found: "hit", "joined" (another's compile), "miss",
    "refused" (known to be bad), "" (ended before it was looked for).
    """

    entries: int = 0
    size_bytes: int = 0  # of all entries, in memory and on the run folder's tmpfs
    leased_bytes: int = 0  # of these, what nothing may evict
    evictions: int = 0  # for want of room
    leases: int = 0  # of guided requests
    answers: Mapping[str, int] = dataclasses.field(default_factory=dict)
    proofs: Mapping[ProofResult, int] = dataclasses.field(default_factory=dict)
    unenforced: int = 0  # requests that were served although a keyword of theirs is not enforced


@dataclasses.dataclass(slots=True)
class Entry:
    """One compiled grammar. `leases` counts who may use it, requests that still wait for ranks included."""

    key: str
    done: Done
    leases: int = 0


class GrammarCache:
    """Least recently used first out, but never one with a lease.

    `most_entries` and `most_bytes` are kept where leases allow; `room_bytes` is what all may take, those with
    a lease included. Artefacts are in `folder`; `load_barrier` hears of a grammar that goes.
    """

    def __init__(
        self, most_entries: int, most_bytes: int, room_bytes: int, folder: Path, load_barrier: LoadBarrier
    ) -> None:
        self._most_entries = most_entries
        self._most_bytes = min(most_bytes, room_bytes)
        self._room_bytes = room_bytes
        self._folder = folder
        self._load_barrier = load_barrier
        self._evictions = 0
        self._size_bytes = 0  # of all entries together
        self._entries: collections.OrderedDict[str, Entry] = collections.OrderedDict()

    @property
    def state(self) -> CacheState:
        """What is kept; of what was asked for, nothing."""
        leased = [entry for entry in self._entries.values() if entry.leases]
        return CacheState(
            entries=len(self._entries),
            size_bytes=self._size_bytes,
            leased_bytes=sum(entry.done.size_bytes for entry in leased),
            evictions=self._evictions,
            leases=sum(entry.leases for entry in leased),
        )

    def get(self, key: str) -> Entry | None:
        """Return an entry and count it as used."""
        entry = self._entries.get(key)
        if entry is not None:
            self._entries.move_to_end(key)
        return entry

    def land(self, entry: Entry) -> None:
        """Take in a grammar whose artefact, if it has one, is in the folder.

        GuidedError: grammar_storage_full, as those in use leave it no room.
        """
        self._entries[entry.key] = entry
        self._size_bytes += entry.done.size_bytes
        self._evict()
        if self._size_bytes > self._room_bytes:
            self.drop(entry)
            message = (
                f"the grammars in use fill all {self._room_bytes >> 20} MiB reserved for compiled grammars"
            )
            raise GuidedError(ErrorCode.GRAMMAR_STORAGE_FULL, message, retry_after_s=1)

    def retract(self, key: str, done: Done, instead: Done | None = None) -> None:
        """Give up what ranks were told to load before it was proven; `instead`: what they are to load now."""
        self._load_barrier.forget(key)
        if done.artifact is not None and (instead is None or instead.artifact is None):
            artifacts.remove(self._folder, done.artifact)

    def release(self, key: str) -> None:
        """End one lease; without any, a grammar stays while there is room."""
        entry = self.get(key)
        if entry is not None and entry.leases:
            entry.leases -= 1
            if not entry.leases:
                self._load_barrier.rest(key)
                self._evict()

    def drop(self, entry: Entry) -> None:
        """Give up a grammar, on the ranks too, unless it is gone."""
        if self._entries.pop(entry.key, None) is not None:
            self._size_bytes -= entry.done.size_bytes
            self.retract(entry.key, entry.done)

    def _evict(self) -> None:
        for entry in [entry for entry in self._entries.values() if not entry.leases]:
            if len(self._entries) <= self._most_entries and self._size_bytes <= self._most_bytes:
                return
            self.drop(entry)
            self._evictions += 1
