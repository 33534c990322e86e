"""Texts of the grammars that a service has sent a rank, for the process of its matchers and those to come."""

import threading
from collections.abc import Set as AbstractSet

from guided_contract.wire import Load


class Texts:
    """By key. Threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_key: dict[str, Load] = {}
        # Of a service that died: it cannot unload them, and what it admitted may still be waiting.
        self._orphans: dict[str, Load] = {}

    def get(self, key: str) -> Load | None:
        """Return a grammar; None: it is not here."""
        with self._lock:
            return self._by_key.get(key) or self._orphans.get(key)

    def put(self, load: Load) -> None:
        """Take what the service that is there now has sent."""
        with self._lock:
            self._by_key[load.key] = load

    def forget(self, key: str) -> None:
        """Forget one."""
        with self._lock:
            self._by_key.pop(key, None)
            self._orphans.pop(key, None)

    def orphan(self) -> AbstractSet[str]:
        """Note that the service has gone; return what the one before had sent, and nobody needs any more."""
        with self._lock:
            if not self._by_key:
                return frozenset()
            gone = self._orphans.keys() - self._by_key.keys()
            self._orphans, self._by_key = self._by_key, {}
            return gone

    def __len__(self) -> int:
        return len(self._by_key | self._orphans)
