"""Keeps one child process alive: starts it again when it dies, stops it when told, leaves nothing behind.

As PID 1 of the sidecar container it also reaps orphans; elsewhere it makes itself their reaper, so that
`guidedmodel run` leaves as little behind as a pod.
"""

import contextlib
import logging
import os
import select
import signal
import subprocess
import time
from collections.abc import Sequence
from typing import Final

from guided_sidecar import orphans

_log = logging.getLogger(__name__)
_STABLE_S: Final = 2.0  # a child that lived so long had begun to serve: it is started again at once
_FIRST_DELAY_S: Final = 0.1
_MOST_DELAY_S: Final = 5.0
_LOOK_S: Final = 0.05


class Child:
    """The supervised process, in a process group of its own.

    Parameters
    ----------
    command
        Program and arguments.
    waits
        Whether it gets one argument more, the number of a descriptor to read a line from before it begins.
    """

    def __init__(self, command: Sequence[str], *, waits: bool = False) -> None:
        readable, self._go = os.pipe()
        with os.fdopen(readable):
            self._process = subprocess.Popen(  # noqa: S603 - our own command
                [*command, str(readable)] if waits else command,
                start_new_session=True,
                pass_fds=[readable] if waits else [],
            )
        self.started = time.monotonic()

    def begin(self) -> None:
        """Let one that waits begin."""
        self.started = time.monotonic()
        with contextlib.suppress(BrokenPipeError):  # it has died meanwhile, or never waited
            os.write(self._go, b"\n")

    @property
    def pid(self) -> int:
        """The process's number, and its group's."""
        return self._process.pid

    def is_alive(self) -> bool:
        """Return whether it still runs; reaps it once it does not."""
        return self._process.poll() is None

    def is_stopped(self) -> bool:
        """Return whether a signal has stopped it: it would serve nobody, and never end."""
        with contextlib.suppress(ChildProcessError):  # reaped
            return os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WNOHANG) is not None
        return False

    @property
    def exit_code(self) -> int | None:
        """How it ended; negative: by that signal."""
        return self._process.returncode

    def terminate(self, deadline_s: float) -> None:
        """Ask it to end; after the deadline kill it, and in any case whatever is left of its group."""
        if self.is_alive():
            self._process.terminate()
            try:
                self._process.wait(deadline_s)
            except subprocess.TimeoutExpired:
                _log.warning("process %d did not end within %g s", self.pid, deadline_s)
        self.kill_group()

    def kill_group(self) -> None:
        """Kill every process of its group, and reap the child."""
        with contextlib.suppress(ProcessLookupError):  # none is left
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()
        if self._go >= 0:
            os.close(self._go)
            self._go = -1


class Supervisor:
    """Runs a child until it is told to stop.

    Parameters
    ----------
    command
        The child's program and arguments.
    grace_s
        What the child gets to end by itself after TERM.
    has_standby
        Whether a second child waits, all imported, to take the place of one that dies: see Child.
    """

    def __init__(self, command: Sequence[str], grace_s: float, *, has_standby: bool = False) -> None:
        self._command = command
        self._grace_s = grace_s
        self._has_standby = has_standby
        self._standby: Child | None = None
        self._stopping = False
        self._failures = 0

    def run(self) -> None:
        """Supervise until TERM or INT."""
        orphans.reap_descendants()
        signalled = _signal_pipe()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        child = self._start()
        while not self._stopping:
            if child.is_alive() and not child.is_stopped():
                self._keep_standby(child)
                _wait(signalled)
                self._reap_orphans(child)
            else:
                child = self._replacement(child)
        child.terminate(self._grace_s)
        if self._standby is not None:
            self._standby.kill_group()
            self._standby = None
        self._reap_orphans(child)

    def _start(self) -> Child:
        """Return a child that begins: the one that stands by, if it does."""
        child, self._standby = self._standby, None
        if child is None or not child.is_alive():
            child = Child(self._command, waits=self._has_standby)
        child.begin()
        return child

    def _keep_standby(self, child: Child) -> None:
        """Have a child stand by once the first serves, so that both do not want the CPU at once."""
        if self._standby is not None and not self._standby.is_alive():
            self._standby.kill_group()
            self._standby = None
        if self._has_standby and self._standby is None and time.monotonic() - child.started >= _STABLE_S:
            self._standby = Child(self._command, waits=True)

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
        return child if self._stopping else self._start()

    def _reap_orphans(self, child: Child) -> None:
        """Reap every dead process but our children, whose exit codes their Popens are to see."""
        ours = {child.pid} | ({self._standby.pid} if self._standby is not None else set())
        while True:
            try:
                found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if found is None or found.si_pid in ours:
                return
            os.waitpid(found.si_pid, 0)

    def _stop(self, *_: object) -> None:
        self._stopping = True


def _signal_pipe() -> int:
    """Return a pipe's end that becomes readable with every handled signal, a child's death included.

    Not a blocked signal and sigtimedwait: children would inherit the mask, and never hear of theirs.
    """
    readable, writable = os.pipe()
    os.set_blocking(readable, False)
    os.set_blocking(writable, False)
    signal.set_wakeup_fd(writable)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    return readable


def _wait(signalled: int) -> None:
    """Wait for a signal, or a little."""
    if select.select([signalled], [], [], _LOOK_S * 10)[0]:
        os.read(signalled, 4096)
