"""The supervisor with real children: restart at once, backoff, TERM with a deadline, nothing left behind."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.engine import wait_until

Start = Callable[..., subprocess.Popen[bytes]]

COUNTER = "import os, time; open('starts', 'a').write(f'{os.getpid()}\\n'); "


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start a supervisor of a Python program in `tmp_path`."""
    started: list[subprocess.Popen[bytes]] = []

    def supervise(program: str, grace_s: float = 2.0, before: str = "") -> subprocess.Popen[bytes]:
        code = f"""
from guided_sidecar import supervisor
{before}
supervisor.Supervisor(lambda: exec({program!r}, {{}}), {grace_s}).run()
"""
        with Path(tmp_path, "log").open("ab") as log:
            started.append(subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path, stderr=log))
        return started[-1]

    yield supervise
    for process in started:
        process.terminate()  # it ends what it started, also what it has not told us of yet
        process.wait(20)
    for pid in _starts(tmp_path):
        if _exists(pid):
            os.kill(pid, signal.SIGKILL)


def test_a_stopped_child_is_replaced(tmp_path: Path, start: Start) -> None:
    """It would serve nobody, and never say so."""
    start(COUNTER + "time.sleep(60)")
    wait_until(lambda: len(_starts(tmp_path)) == 1)
    os.kill(_starts(tmp_path)[0], signal.SIGSTOP)
    wait_until(lambda: len(_starts(tmp_path)) == 2)

    assert not _exists(_starts(tmp_path)[0])
    assert _exists(_starts(tmp_path)[1])


PLAYED = """
class Time:
    now_s = 0.0

    def monotonic(self):
        return self.now_s

    def sleep(self, seconds):
        self.now_s += seconds

supervisor.time = Time()
"""


def test_a_child_that_keeps_dying_is_not_started_at_once(tmp_path: Path, start: Start) -> None:
    """By the supervisor's clock, which is played; a child is a fork and sees it."""
    clock = "from guided_sidecar import supervisor; open('at', 'a').write(f'{supervisor.time.now_s}\\n'); "
    start(COUNTER + clock + "raise SystemExit(1)", before=PLAYED)
    wait_until(lambda: len(_starts(tmp_path)) > 3, 120)

    at_s = [float(line) for line in Path(tmp_path, "at").read_text().splitlines()[:3]]
    assert at_s == [0, 0.5, 1]


def test_a_child_that_ignores_term_is_killed_at_the_deadline(tmp_path: Path, start: Start) -> None:
    stubborn = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
    supervisor = start(stubborn + COUNTER + "time.sleep(60)", 0.5)
    wait_until(lambda: len(_starts(tmp_path)) == 1)
    supervisor.terminate()

    assert supervisor.wait(20) == 0
    assert "did not end within 0.5 s" in Path(tmp_path, "log").read_text()
    assert not _exists(_starts(tmp_path)[0])


def test_orphans_are_reaped(tmp_path: Path, start: Start) -> None:
    """A grandchild in a session of its own, whose parent ends first, becomes the supervisor's to reap."""
    orphan = (
        "import subprocess, sys; subprocess.run([sys.executable, '-c', "
        "\"import subprocess; p = subprocess.Popen(['sleep', '0.3'], start_new_session=True); "
        "open('starts', 'a').write(str(p.pid) + chr(10))\"]); import time; time.sleep(60)"
    )
    start(orphan)
    wait_until(lambda: len(_starts(tmp_path)) == 1)
    (pid,) = _starts(tmp_path)

    wait_until(lambda: not _exists(pid))


def _starts(folder: Path) -> list[int]:
    try:
        return [int(line) for line in Path(folder, "starts").read_text().splitlines()]
    except FileNotFoundError:
        return []


def _exists(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()
