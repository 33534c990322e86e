"""The API server and everything that it starts, as one thing that can be signalled, waited for and killed."""

import asyncio
import contextlib
import logging
import os
import signal
import subprocess
import time
from typing import Final

import psutil

from guided_contract import processes
from guided_engine.launcher.command import EngineCommand

_log = logging.getLogger("guided_engine")

_POLL_S: Final = 0.05


class EngineProcess:
    """The API server in a process group of its own; orphans of it become our children.

    The launcher is their subreaper: when the API server alone is killed, engine core and ranks do not
    vanish from sight, and `stop_rest` waits until the last one has gone.
    """

    def __init__(self, command: EngineCommand) -> None:
        processes.reap_descendants()
        # Should the launcher itself be killed outside a container, the API server still gets its TERM.
        self._child = subprocess.Popen(  # noqa: S603 - the arguments are the pod's own
            command.argv,
            env=dict(command.env),
            process_group=0,
            preexec_fn=lambda: processes.die_with_parent(signal.SIGTERM),  # noqa: PLW1509 - one thread yet
        )
        self.pid = self._child.pid
        self._exited = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGCHLD, self._reap)
        self._reap()

    @property
    def exit_code(self) -> int | None:
        """The API server's exit code, 128 + n after signal n, None while it runs."""
        code = self._child.returncode
        return 128 - code if code is not None and code < 0 else code

    async def wait(self) -> int:
        """Wait for the API server to end, and return its exit code."""
        await self._exited.wait()
        assert self.exit_code is not None
        return self.exit_code

    def signal(self, number: int) -> None:
        """Send a signal to the API server, which ends its children in order."""
        if self.exit_code is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    async def stop_rest(self, grace_s: float, term_s: float) -> None:
        """End what the API server left behind, and wait for the last of it.

        Nothing for `grace_s`: multiprocessing's resource tracker ends by itself, having removed the shared
        memory of the dead. Then TERM, and after `term_s` more KILL.
        """
        if await _ended_within(grace_s):
            return
        _log.warning("guidedmodel: the API server left %d processes behind; ending them", len(descendants()))
        _signal_all(descendants(), signal.SIGTERM)
        if await _ended_within(term_s):
            return
        while left := descendants():  # again and again: a parent may have forked meanwhile
            _signal_all(left, signal.SIGKILL)
            await asyncio.sleep(_POLL_S)

    def kill(self) -> None:
        """Kill the API server and all that it started, at once."""
        _signal_all(descendants(), signal.SIGKILL)

    def _reap(self) -> None:
        # All children, because adopted orphans become zombies of ours; hence not through Popen.wait.
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    break
                if pid == self.pid:
                    self._child.returncode = os.waitstatus_to_exitcode(status)
                    self._exited.set()


async def _ended_within(seconds: float) -> bool:
    """Wait until there are no descendants; False if some are left after so many seconds."""
    deadline = time.monotonic() + seconds
    while descendants():
        if time.monotonic() >= deadline:
            return False
        await asyncio.sleep(_POLL_S)
    return True


def descendants() -> list[int]:
    """Return the pids of all processes below this one."""
    return [process.pid for process in psutil.Process().children(recursive=True)]


def _signal_all(pids: list[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
