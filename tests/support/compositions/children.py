"""Work in a child that may crash, hang or fill the memory."""

import os
import pickle
import select
import signal
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

from support.compositions.attempt import Outcome

_LIMIT_S: Final = 10.0  # of wall clock: what takes longer is counted, not judged


def outcome(work: Callable[[], Any], limit_s: float = _LIMIT_S) -> Any:
    """Return what `work` returns in a process of its own; an Outcome with a count if it ends badly."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        _work(work, writing)
    os.close(writing)
    data = b""
    until = time.monotonic() + limit_s
    while select.select([reading], [], [], max(0.0, until - time.monotonic()))[0]:
        if not (part := os.read(reading, 1 << 20)):
            break
        data += part
    else:
        os.kill(child, signal.SIGKILL)
        data = pickle.dumps(Outcome(Counter(["too slow to be looked at"])))
    os.close(reading)
    _, status = os.waitpid(child, 0)
    return pickle.loads(data) if data else Outcome(Counter([f"ended by {status}"]))


def _work(work: Callable[[], Any], writing: int) -> None:
    status = 1
    try:
        with os.fdopen(writing, "wb") as pipe:
            pickle.dump(work(), pipe)
        status = 0
    except BaseException as error:  # noqa: BLE001 - all that it has to say
        import traceback

        traceback.print_exception(error)
    finally:
        os._exit(status)
