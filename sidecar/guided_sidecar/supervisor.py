"""Keeps one child process alive: restarts it when it dies, stops it on TERM, leaves no process behind.

The child is a fork: whoever starts a supervisor has imported what the child needs, which takes a second or
two, and a child that dies has its successor within milliseconds.

As PID 1 of the sidecar container it also reaps orphans; elsewhere it makes itself their reaper, so that
`guidedmodel run` leaves as little behind as a pod.
"""

import contextlib
import gc
import logging
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterable
from typing import Final, NoReturn

from guided_contract import processes

_log = logging.getLogger(__name__)
_STABLE_S: Final = 2.0  # a child that lived so long had begun to serve: it is started again at once
_FIRST_DELAY_S: Final = 0.1
_MOST_DELAY_S: Final = 5.0
_LOOK_S: Final = 0.05
_REST_S: Final = 1.0
_ENDS: Final = {signal.SIGTERM, signal.SIGINT}
_WATCHED: Final = {*_ENDS, signal.SIGCHLD}


class Child:
    """The supervised process, in a session of its own.

    Parameters
    ----------
    run
        What it does; it ends with 0 when that returns, else as a Python program would.
    mask
        Signals that it blocks.
    """

    def __init__(self, run: Callable[[], None], mask: Iterable[int]) -> None:
        self.started = time.monotonic()
        self.exit_code: int | None = None  # how it ended; negative: by that signal
        self.pid = os.fork()
        if self.pid == 0:
            _become(run, mask)

    def is_alive(self) -> bool:
        """Return whether it still runs; reaps it once it does not."""
        if self.exit_code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.exit_code = os.waitstatus_to_exitcode(status)
        return self.exit_code is None

    def is_stopped(self) -> bool:
        """Return whether a signal has stopped it: it would serve nobody, and never end."""
        return self.is_alive() and os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WNOHANG) is not None

    def terminate(self, deadline_s: float) -> None:
        """Ask it to end; after the deadline kill it, and in any case whatever is left of its group."""
        if self.is_alive():
            os.kill(self.pid, signal.SIGTERM)
        until = time.monotonic() + deadline_s
        while self.is_alive() and time.monotonic() < until:
            time.sleep(_LOOK_S)
        if self.is_alive():
            _log.warning("process %d did not end within %g s", self.pid, deadline_s)
        self.kill_group()

    def kill_group(self) -> None:
        """Kill every process of its group, and reap the child."""
        with contextlib.suppress(ProcessLookupError):  # none is left
            os.killpg(self.pid, signal.SIGKILL)
        if self.exit_code is None:
            os.kill(self.pid, signal.SIGKILL)  # it may have no group of its own yet
            self.exit_code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


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
        self._failures = 0
        self._stopping = False

    def run(self) -> None:
        """Supervise until TERM or INT."""
        processes.reap_descendants()
        gc.collect()
        gc.freeze()  # what is shared with children stays so: collecting writes to every object it looks at
        # Waited for, and so never lost: neither here nor, before a child has its own ways, there.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, _WATCHED)
        child = Child(self._run, mask)
        while not self._is_told():
            if child.is_alive() and not child.is_stopped():
                self._is_told(_LOOK_S * 10)
                _reap_orphans(child)
            else:
                child = self._replacement(child, mask)
        child.terminate(self._grace_s)
        _reap_rest()

    def _replacement(self, child: Child, mask: Iterable[int]) -> Child:
        """Clear away what the dead child left, and start another; later and later if they keep dying."""
        child.kill_group()
        _log.warning("process %d ended with %s; starting it again", child.pid, child.exit_code)
        lived_s = time.monotonic() - child.started
        self._failures = 0 if lived_s >= _STABLE_S else self._failures + 1
        if self._failures > 1:
            until = time.monotonic() + min(_FIRST_DELAY_S * 2.0 ** (self._failures - 2), _MOST_DELAY_S)
            while time.monotonic() < until and not self._is_told():
                time.sleep(_LOOK_S)
        return child if self._stopping else Child(self._run, mask)

    def _is_told(self, wait_s: float = 0.0) -> bool:
        """Return whether TERM or INT has come, after waiting for a signal so long at most."""
        signalled = signal.sigtimedwait(_WATCHED, wait_s)
        self._stopping |= signalled is not None and signalled.si_signo in _ENDS
        return self._stopping


def _reap_orphans(child: Child) -> None:
    """Reap every dead process but our child, whose end is for `is_alive` to see."""
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


def _become(run: Callable[[], None], mask: Iterable[int]) -> NoReturn:
    """Run the child: in its own session, with the default signal handlers."""
    status = 1
    try:
        os.setsid()
        for number in _WATCHED:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        run()
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 1
    except BaseException:  # noqa: BLE001 - whatever happens, it never returns into the supervisor's loop
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
