"""Prepared grammars by key, with the leases on them."""

import collections
import dataclasses
from collections.abc import Iterator

from guided_sidecar.grammar.worker_messages import Done


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
    """

    def __init__(self, most_entries: int, most_bytes: int) -> None:
        self._most_entries = most_entries
        self._most_bytes = most_bytes
        self.evictions = 0
        self._bytes = 0
        self._entries: collections.OrderedDict[str, Entry] = collections.OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def size_bytes(self) -> int:
        """Of all entries together."""
        return self._bytes

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

    def add(self, entry: Entry) -> None:
        """Add a compiled grammar; call `evict` afterwards."""
        self.remove(entry.key)
        self._entries[entry.key] = entry
        self._bytes += entry.done.size_bytes

    def remove(self, key: str) -> Entry | None:
        """Take an entry out."""
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._bytes -= entry.done.size_bytes
        return entry

    def evict(self) -> list[Entry]:
        """Take out the longest unused entries without a lease until the rest fits, and return them."""
        return list(self._evicted())

    def _evicted(self) -> Iterator[Entry]:
        free = [entry for entry in self._entries.values() if not entry.leases]
        for entry in free:
            if len(self._entries) <= self._most_entries and self._bytes <= self._most_bytes:
                return
            self.remove(entry.key)
            self.evictions += 1
            yield entry
