"""The connections of vLLM's HTTP server, which is uvicorn's: where it keeps them, and which are idle.

No change to vLLM, and so no entry of the ledger: it is only read, and told what it tells itself at its end.
"""

import weakref
from typing import Any


class Idle:
    """The connections of a server on which nothing is asked.

    Parameters
    ----------
    app
        vLLM's application, whose state holds the server.
    """

    def __init__(self, app: Any) -> None:
        self._app = app
        # On which nothing was asked yet, and when each was seen first: uvicorn does not know.
        self._unused: weakref.WeakKeyDictionary[Any, float] = weakref.WeakKeyDictionary()

    def look(self, now_s: float) -> None:
        """Note which connections exist at `now_s`, the event loop's clock in seconds."""
        for connection in self._known():
            if connection.cycle is None:
                self._unused.setdefault(connection, now_s)

    def close(self, idle_s: float, now_s: float) -> int:
        """Close connections without a request for `idle_s` seconds; return how many were closed.

        `now_s` is the event loop's clock, as for `look`; a new connection is idle since it was first seen.
        """
        self.look(now_s)
        idle = [one for one in self._known() if now_s - self._since_s(one, now_s) >= idle_s]
        for connection in idle:
            connection.shutdown()
        return len(idle)

    def _known(self) -> list[Any]:
        server = getattr(self._app.state, "server", None)
        known = server.server_state.connections if server is not None else ()
        return [one for one in known if hasattr(one, "timeout_keep_alive")]  # others are web sockets

    def _since_s(self, connection: Any, now_s: float) -> float:
        if connection.cycle is None:
            return self._unused[connection]
        # Set when a response has ended, unset when a request comes.
        timer, kept_s = connection.timeout_keep_alive_task, float(connection.timeout_keep_alive)
        return now_s if timer is None else float(timer.when()) - kept_s
