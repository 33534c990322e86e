"""Programs started by us: run to their end, or long-running, with a log and what it said when it failed."""

import random
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

STOP_TIMEOUT_S = 10.0


class StartError(Exception):
    """A program did not become ready; the message holds the end of its log."""


class Process:
    """One child in a session of its own, killed by the kernel when the thread that started it ends."""

    def __init__(self, name: str, child: subprocess.Popen[bytes], log: Path) -> None:
        self.name = name
        self.log = log
        self._child = child

    @classmethod
    def start(  # noqa: PLR0913 - keywords beyond the first three, as of subprocess.Popen
        cls,
        name: str,
        command: Sequence[str | Path],
        log: Path,
        *,
        environment: Mapping[str, str] | None = None,
        pass_fds: Sequence[int] = (),
        outlives_us: bool = False,
    ) -> Self:
        """Start a command with its output in `log`."""
        # setpriv: should this process be killed, its children go too instead of staying for ever.
        guard = [] if outlives_us else ["/usr/bin/setpriv", "--pdeathsig", "KILL"]
        with log.open("ab") as out:
            child = subprocess.Popen(  # noqa: S603 - commands are made in this package
                [*guard, *map(str, command)],
                pass_fds=pass_fds,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env=environment,
            )
        return cls(name, child, log)

    @property
    def pid(self) -> int:
        """The process id."""
        return self._child.pid

    def is_running(self) -> bool:
        """Return whether the program still runs."""
        return self._child.poll() is None

    def wait_ready(self, is_ready: Callable[[], bool], timeout_s: float) -> None:
        """Wait until a condition holds.

        Raises
        ------
        StartError
            The program ended, or the deadline passed.
        """
        deadline = time.monotonic() + timeout_s
        while not is_ready():
            if not self.is_running():
                raise StartError(f"{self.name} ended with {self._child.returncode}:\n{tail(self.log)}")
            if time.monotonic() > deadline:
                raise StartError(f"{self.name} is not ready after {timeout_s:.0f} s:\n{tail(self.log)}")
            time.sleep(0.05)

    def kill(self) -> None:
        """End the program at once."""
        self._child.kill()
        self._child.wait()

    def stop(self) -> None:
        """Ask the program to end, and kill it when it does not."""
        if self.is_running():
            self._child.send_signal(signal.SIGTERM)
            try:
                self._child.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self._child.kill()
        self._child.wait()


def output(
    command: Sequence[str | Path],
    timeout_s: float,
    error: Callable[[str], Exception] = RuntimeError,
    **options: Any,
) -> str:
    """Run a command to its end and return what it printed; `options` are subprocess.run's.

    Where it fails, `error` is made of the end of what it said, and raised.
    """
    done: subprocess.CompletedProcess[str] = subprocess.run(  # noqa: S603 - commands are made in this package
        [*map(str, command)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
        **options,
    )
    if done.returncode:
        said = "\n".join(filter(None, (done.stdout.strip(), done.stderr.strip())))
        raise error(f"{' '.join(map(str, command))[:200]} failed: {said[-4000:]}")
    return done.stdout


def tail(log: Path, characters: int = 3000) -> str:
    """Return the end of a log, or why there is none."""
    try:
        return log.read_text(errors="replace")[-characters:]
    except OSError as error:
        return f"({log}: {error.strerror})"


def free_ports(count: int) -> list[int]:
    """Return TCP ports of 127.0.0.1 that nobody listens on.

    They lie below the range from which the kernel takes ports for outgoing connections, so that none is
    lost to one of those before its server binds it.
    """
    found: list[int] = []
    for port in random.sample(range(20000, 32000), 2000):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        found.append(port)
        if len(found) == count:
            return found
    raise StartError(f"no {count} free ports between 20000 and 32000")
