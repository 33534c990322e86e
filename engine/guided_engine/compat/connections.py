"""The connections of vLLM's HTTP server, which is uvicorn's: where it keeps them, and which are idle.

No change to vLLM, and so no entry of the ledger: it is only read, and told what it tells itself at its end.
"""

from typing import Any


def close_idle(app: Any, idle_s: float, now_s: float) -> int:
    """Close the connections on which nothing was asked yet, or nothing for `idle_s`; return how many.

    Parameters
    ----------
    app
        vLLM's application, whose state holds the server.
    now_s
        Now, by the event loop's clock.
    """
    server = getattr(app.state, "server", None)
    known = list(server.server_state.connections) if server is not None else []
    idle = [one for one in known if _is_idle(one, idle_s, now_s)]
    for connection in idle:
        connection.shutdown()
    return len(idle)


def _is_idle(connection: Any, idle_s: float, now_s: float) -> bool:
    if not hasattr(connection, "timeout_keep_alive"):  # a web socket
        return False
    if connection.cycle is None:
        return True
    timer = connection.timeout_keep_alive_task  # set when a response has ended, unset when a request comes
    return timer is not None and now_s - (timer.when() - connection.timeout_keep_alive) >= idle_s
