"""One container of a local pod as processes of this machine: start, look, stop, kill."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

_GUARD = Path(__file__).with_name("guard.py")


class Process:
    """A command below its guard (see guard.py), its output in a log. It never outlives its maker.

    `child` is the running guard, `lifeline` the write end of its pipe.
    """

    def __init__(self, name: str, child: subprocess.Popen[bytes], lifeline: int, log: Path) -> None:
        self.name = name
        self.log = log
        self._child = child
        self._lifeline: int | None = lifeline

    @classmethod
    def start(
        cls, name: str, command: Sequence[str], *, environment: Mapping[str, str], log: Path, folder: Path
    ) -> Self:
        """Start a command; should we die before we stop it, the guard does so and removes `folder`."""
        watched, lifeline = os.pipe()
        guarded = [sys.executable, "-I", "-S", str(_GUARD), str(watched), str(folder), *command]
        try:
            with log.open("ab") as out:
                child = subprocess.Popen(  # noqa: S603 - the command of the pod's own plan
                    guarded,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=subprocess.STDOUT,
                    env=dict(environment),
                    pass_fds=(watched,),
                    start_new_session=True,  # a Ctrl-C of the terminal is ours to pass on
                )
        except BaseException:
            os.close(lifeline)
            raise
        finally:
            os.close(watched)
        return cls(name, child, lifeline, log)

    @property
    def pid(self) -> int:
        """The guard's process id; the command and all its processes are below it."""
        return self._child.pid

    def exit_status(self) -> int | None:
        """Return how the command ended (128 + N: by signal N), None while it runs."""
        return self._child.poll()

    def ask_to_stop(self) -> None:
        """Send SIGTERM to the command."""
        if self._child.poll() is None:
            self._child.send_signal(signal.SIGTERM)

    def wait(self, timeout_s: float) -> bool:
        """Return whether the command, and with it all its processes, ended within the time."""
        try:
            self._child.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return False
        self._close()
        return True

    def kill(self) -> None:
        """Kill the command and everything that it started; return when nothing of it is left."""
        if self._lifeline is not None and self._child.poll() is None:
            os.write(self._lifeline, b"k")
        self._child.wait()
        self._close()

    def _close(self) -> None:
        if self._lifeline is not None:
            os.close(self._lifeline)
            self._lifeline = None


def tail(log: Path, lines: int = 30) -> str:
    """Return the last lines of a log, "" where there is none."""
    try:
        text = log.read_text(errors="replace")
    except OSError:
        return ""
    return "\n".join(text.splitlines()[-lines:])
