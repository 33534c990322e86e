"""Prepared grammars by key, with the leases on them; and refusals, so that a bad grammar costs once."""

import collections
import dataclasses
from collections.abc import Iterator

from guided_contract.errors import ErrorCode, GuidedError
from guided_sidecar.grammar.jobs import Done

# Another try may end otherwise: these count before they are believed.
_UNCERTAIN = frozenset(
    {
        ErrorCode.GRAMMAR_COMPILE_TIMEOUT,
        ErrorCode.GRAMMAR_COMPILE_CRASHED,
        ErrorCode.GRAMMAR_COMPILE_MEMORY,
    }
)
_CERTAIN = frozenset(
    {
        ErrorCode.GRAMMAR_INVALID,
        ErrorCode.GRAMMAR_TOO_LARGE,
        ErrorCode.GRAMMAR_UNSUPPORTED,
        ErrorCode.GRAMMAR_DEAD_END,
    }
)


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


@dataclasses.dataclass(slots=True)
class _Verdict:
    error: GuidedError
    since_s: float
    count: int = 1


class Verdicts:
    """Refusals by key: certain ones hold, uncertain ones after `quarantine_after` equal ones, for a while.

    Parameters
    ----------
    most_entries
        Kept at most, oldest first out.
    quarantine_after
        Equal uncertain failures in a row until one is believed.
    quarantine_s
        How long it is then believed.
    """

    def __init__(self, most_entries: int, quarantine_after: int, quarantine_s: float) -> None:
        self._most_entries = most_entries
        self._quarantine_after = quarantine_after
        self._quarantine_s = quarantine_s
        self._verdicts: collections.OrderedDict[str, _Verdict] = collections.OrderedDict()

    def check(self, key: str, now_s: float) -> None:
        """Raise the known refusal of a key, if there is one.

        Raises
        ------
        GuidedError
            As it was refused before.
        """
        verdict = self._verdicts.get(key)
        if verdict is None:
            return
        if verdict.error.code in _UNCERTAIN:
            if now_s - verdict.since_s >= self._quarantine_s:
                del self._verdicts[key]
                return
            if verdict.count < self._quarantine_after:
                return
        raise GuidedError(verdict.error.code, verdict.error.message, path=verdict.error.path)

    def quarantined(self, now_s: float) -> int:
        """Return how many uncertain refusals are believed now."""
        return sum(
            verdict.error.code in _UNCERTAIN
            and verdict.count >= self._quarantine_after
            and now_s - verdict.since_s < self._quarantine_s
            for verdict in self._verdicts.values()
        )

    def record(self, key: str, error: GuidedError, now_s: float) -> None:
        """Remember a refusal; one that says nothing about the grammar is not remembered."""
        if error.code not in _CERTAIN | _UNCERTAIN:
            return
        before = self._verdicts.pop(key, None)
        count = before.count + 1 if before is not None and before.error.code is error.code else 1
        self._verdicts[key] = _Verdict(error, now_s, count)
        if len(self._verdicts) > self._most_entries:
            self._verdicts.popitem(last=False)

    def forgive(self, key: str) -> None:
        """Forget a key's refusals: it has compiled."""
        self._verdicts.pop(key, None)
