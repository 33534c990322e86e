"""For the first process of a container: the kernel spares it each signal it has no handler for, also TERM."""

import os
import signal
from typing import Final

# As a shell says it of a program that TERM ended.
ENDED_BY_TERM: Final = 128 + signal.SIGTERM


def end_on_term() -> None:
    """Have TERM end this process at once, until it listens in its own way.

    To be called before anything is imported that takes time, seconds on a busy machine. Without it a TERM
    that comes meanwhile is lost, and a pod that is deleted as it starts serves on, until its grace period is
    over: minutes, where it is to drain.
    """
    signal.signal(signal.SIGTERM, lambda *_: os._exit(ENDED_BY_TERM))
