"""Keeps one child process alive: restarts it when it dies, stops it on TERM, leaves no process behind.

The child is a fork: whoever starts a supervisor has imported what the child needs, which takes a second or
two, and a child that dies has its successor within milliseconds.

As PID 1 of the sidecar container it also reaps orphans; elsewhere it makes itself their reaper, so that
`guidedmodel run` leaves as little behind as a pod.
"""

import contextlib
import gc
import logging
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterable
from multiprocessing.process import BaseProcess
from typing import Final

from guided_contract import processes

_log = logging.getLogger(__name__)
_STABLE_S: Final = 2.0  # a child that lived so long had begun to serve: it is started again at once
_DELAY_S: Final = 0.5  # before another is started, of one that lived for less
_LOOK_S: Final = 0.5
_REST_S: Final = 1.0
_ENDS: Final = {signal.SIGTERM, signal.SIGINT}
_WATCHED: Final = {*_ENDS, signal.SIGCHLD}


class Supervisor:
    """Runs a child until it is told to stop.

    Parameters
    ----------
    run
        What the child does. This process must have one thread, or the fork of it may wait for ever.
    grace_s
        What the child gets to end by itself after TERM.
    """

    def __init__(self, run: Callable[[], None], grace_s: float) -> None:
        self._run = run
        self._grace_s = grace_s
        self._stopping = False

    def run(self) -> None:
        """Supervise until TERM or INT."""
        processes.reap_descendants()
        gc.collect()
        gc.freeze()  # what is shared with children stays so: collecting writes to every object it looks at
        # Waited for, and so never lost: neither here nor, before a child has its own ways, there.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, _WATCHED)
        while not self._is_told():
            started = time.monotonic()
            child = multiprocessing.get_context("fork").Process(target=_become, args=(self._run, mask))
            child.start()
            while _serves(child) and not self._is_told(_LOOK_S):
                _reap_orphans(child)
            if self._stopping:
                child.terminate()
                child.join(self._grace_s)
                if child.is_alive():
                    _log.warning("process %d did not end within %g s", child.pid, self._grace_s)
            _kill_group(child)
            if not self._stopping:
                _log.warning("process %d ended with %s; starting it again", child.pid, child.exitcode)
                if time.monotonic() - started < _STABLE_S:
                    time.sleep(_DELAY_S)
        _reap_rest()

    def _is_told(self, wait_s: float = 0.0) -> bool:
        """Return whether TERM or INT has come, after waiting for a signal so long at most."""
        signalled = signal.sigtimedwait(_WATCHED, wait_s)
        self._stopping |= signalled is not None and signalled.si_signo in _ENDS
        return self._stopping


def _become(run: Callable[[], None], mask: Iterable[int]) -> None:
    """Run as the child: in a session of its own, with the default signal handlers."""
    os.setsid()
    for number in _WATCHED:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    run()


def _serves(child: BaseProcess) -> bool:
    """Return whether a child runs; one that a signal has stopped would serve nobody, and never end."""
    return os.waitid(os.P_PID, _pid(child), os.WEXITED | os.WSTOPPED | os.WNOHANG | os.WNOWAIT) is None


def _kill_group(child: BaseProcess) -> None:
    """Kill every process of a child's group, and reap the child."""
    with contextlib.suppress(ProcessLookupError):  # none is left
        os.killpg(_pid(child), signal.SIGKILL)
    child.kill()  # it may have no group of its own yet
    child.join()


def _pid(child: BaseProcess) -> int:
    assert child.pid is not None  # it has been started
    return child.pid


def _reap_orphans(child: BaseProcess) -> None:
    """Reap every dead process but our child, whose end is for `_serves` to see."""
    with contextlib.suppress(ChildProcessError):
        while found := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            if found.si_pid == child.pid:
                return
            os.waitpid(found.si_pid, 0)


def _reap_rest() -> None:
    """Reap the orphans that the child leaves; its descendants die a moment after it."""
    until = time.monotonic() + _REST_S
    with contextlib.suppress(ChildProcessError):  # none is left
        while time.monotonic() < until:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                time.sleep(_REST_S / 200)
