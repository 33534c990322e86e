"""A pod of `guidedmodel run`, seen from outside: its processes, which of them compiles, its HTTP API."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx

from support.sidecar import descendants, exists

PROGRAM = Path(sys.executable).with_name("guidedmodel")
REQUEST_TIMEOUT_S = 120.0
_SERVICE = b"guided_sidecar.service"
_GRAMMAR = b"guided_sidecar.grammar.template"
_CLOCK_TICKS = os.sysconf("SC_CLK_TCK")


def run(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run `guidedmodel` to its end."""
    return subprocess.run(
        [PROGRAM, *arguments], capture_output=True, text=True, check=False, timeout=60, **options
    )


def wait_until(condition: Callable[[], bool], what: str, timeout_s: float = 30.0) -> None:
    """Wait for a condition that other processes bring about; fail at the deadline."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"waited {timeout_s} s for {what}"
        time.sleep(0.01)


class Pod:
    """The processes below `guidedmodel run`, and its API."""

    def __init__(self, pid: int, url: str) -> None:
        self.pid = pid
        self.url = url

    def ask(self, **fields: Any) -> httpx.Response:
        """Send a completion request; `fields` go into its body."""
        body = {"model": "tiny", "prompt": "x", "max_tokens": 60, "temperature": 0, **fields}
        return httpx.post(f"{self.url}/v1/completions", json=body, timeout=REQUEST_TIMEOUT_S)

    def processes(self) -> set[int]:
        """Return every process of the pod."""
        return set(descendants(self.pid))

    def service(self) -> int | None:
        """Return the process of the sidecar's service."""
        return next((pid for pid in self.processes() if _SERVICE in _command(pid)), None)

    def compiling(self) -> int | None:
        """Return the grammar worker that used CPU in the last tenth of a second, if one did."""
        workers = [pid for pid in self.processes() if _GRAMMAR in _command(pid)]
        before = {pid: _cpu_s(pid) for pid in workers}
        time.sleep(0.1)
        return next((pid for pid in workers if exists(pid) and _cpu_s(pid) - before[pid] >= 0.05), None)

    def wait_compiling(self, *besides: int) -> int:
        """Wait until a grammar worker other than these compiles; return its process."""
        found: list[int] = []

        def seen() -> bool:
            pid = self.compiling()
            if pid is not None and pid not in besides:
                found.append(pid)
            return bool(found)

        wait_until(seen, "a grammar worker that compiles")
        return found[0]


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def _cpu_s(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / _CLOCK_TICKS
