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
import select
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
_HANDLED: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD)


class Child:
    """The supervised process, in a process group of its own.

    Parameters
    ----------
    run
        What it does; it ends with 0 when that returns, else as a Python program would.
    pipe
        Both ends of the supervisor's, which are not its.
    """

    def __init__(self, run: Callable[[], None], pipe: tuple[int, int]) -> None:
        self.started = time.monotonic()
        self.exit_code: int | None = None  # how it ended; negative: by that signal
        # Held back until the child has its own ways: one that ours took in it would be lost.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, _HANDLED)
        self.pid = os.fork()
        if self.pid == 0:
            _become(run, pipe, mask)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        self._pidfd = os.pidfd_open(self.pid)

    def is_alive(self) -> bool:
        """Return whether it still runs; reaps it once it does not."""
        if self.exit_code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self._ended(status)
        return self.exit_code is None

    def is_stopped(self) -> bool:
        """Return whether a signal has stopped it: it would serve nobody, and never end."""
        return self.is_alive() and os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WNOHANG) is not None

    def terminate(self, deadline_s: float) -> None:
        """Ask it to end; after the deadline kill it, and in any case whatever is left of its group."""
        if self.is_alive():
            os.kill(self.pid, signal.SIGTERM)
            if not select.select([self._pidfd], [], [], deadline_s)[0]:
                _log.warning("process %d did not end within %g s", self.pid, deadline_s)
        self.kill_group()

    def kill_group(self) -> None:
        """Kill every process of its group, and reap the child."""
        with contextlib.suppress(ProcessLookupError):  # none is left
            os.killpg(self.pid, signal.SIGKILL)
        if self.exit_code is None:
            with contextlib.suppress(ProcessLookupError):  # it has no group of its own yet
                os.kill(self.pid, signal.SIGKILL)
            self._ended(os.waitpid(self.pid, 0)[1])

    def _ended(self, status: int) -> None:
        self.exit_code = os.waitstatus_to_exitcode(status)
        os.close(self._pidfd)


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
        self._pipe = os.pipe()
        self._stopping = False
        self._failures = 0

    def run(self) -> None:
        """Supervise until TERM or INT."""
        processes.reap_descendants()
        gc.collect()
        gc.freeze()  # what is shared with children stays so: collecting writes to every object it looks at
        self._listen()
        child = Child(self._run, self._pipe)
        while not self._stopping:
            if child.is_alive() and not child.is_stopped():
                self._wait()
                self._reap_orphans(child)
            else:
                child = self._replacement(child)
        child.terminate(self._grace_s)
        _reap_rest()

    def _listen(self) -> None:
        """Have the pipe tell of every handled signal, a child's death included.

        Not a blocked signal and sigtimedwait: children would inherit the mask, and never hear of theirs.
        """
        for end in self._pipe:
            os.set_blocking(end, False)
        signal.set_wakeup_fd(self._pipe[1])
        for number, handler in zip(_HANDLED, (self._stop, self._stop, lambda *_: None), strict=True):
            signal.signal(number, handler)

    def _wait(self) -> None:
        """Wait for a signal, or a little."""
        if select.select([self._pipe[0]], [], [], _LOOK_S * 10)[0]:
            os.read(self._pipe[0], 4096)

    def _replacement(self, child: Child) -> Child:
        """Clear away what the dead child left, and start another; later and later if they keep dying."""
        child.kill_group()
        _log.warning("process %d ended with %s; starting it again", child.pid, child.exit_code)
        lived_s = time.monotonic() - child.started
        self._failures = 0 if lived_s >= _STABLE_S else self._failures + 1
        if self._failures > 1:
            until = time.monotonic() + min(_FIRST_DELAY_S * 2.0 ** (self._failures - 2), _MOST_DELAY_S)
            while time.monotonic() < until and not self._stopping:
                time.sleep(_LOOK_S)
        return child if self._stopping else Child(self._run, self._pipe)

    def _reap_orphans(self, child: Child) -> None:
        """Reap every dead process but our child, whose end is for `is_alive` to see."""
        while True:
            try:
                found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if found is None or found.si_pid == child.pid:
                return
            os.waitpid(found.si_pid, 0)

    def _stop(self, *_: object) -> None:
        self._stopping = True


def _reap_rest() -> None:
    """Reap the orphans that the child leaves; its descendants die a moment after it."""
    until = time.monotonic() + _REST_S
    with contextlib.suppress(ChildProcessError):  # none is left
        while time.monotonic() < until:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                time.sleep(_REST_S / 200)


def _become(run: Callable[[], None], pipe: tuple[int, int], mask: Iterable[int]) -> NoReturn:
    """Run the child: in its own session, with the default signal handlers."""
    status = 1
    try:
        os.setsid()
        signal.set_wakeup_fd(-1)
        for number in _HANDLED:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for end in pipe:
            os.close(end)
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
