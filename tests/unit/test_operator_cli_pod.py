"""Containers as local processes: real children, that must be gone afterwards whatever happens."""

import itertools
import math
import os
import signal
import subprocess
import sys
import textwrap
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from guided_operator.cli.local.pod import Container, LocalPod, PodError, Probe, StoppedError, guarded
from guided_operator.cli.local.run import signals_kept
from support.waiting import eventually

MARK = "GUIDEDMODEL_TEST_MARK"

# Answers /ok with 200 and all else with 503; may start a daemon that ignores SIGTERM, as a stray child would.
SERVER = """
import http.server, os, signal, subprocess, sys
if sys.argv[2] == "daemon":
    ignore = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
    subprocess.Popen([sys.executable, "-c", ignore], start_new_session=True)
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/ok" else 503)
        self.end_headers()
        self.wfile.write(b"not yet")
    def log_message(self, *args): pass
signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
print("listening", flush=True)
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""

DAEMON = """
import subprocess, sys, time
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
print(1, flush=True)
time.sleep(600)
"""
DEAF = "import signal, time; signal.signal(15, signal.SIG_IGN); print(1, flush=True); time.sleep(600)"


# Maps shared memory of its own and that of another, and says so.
SHARES = """
import mmap, os, sys, time
maps = []
for path in sys.argv[1:]:
    made = path if os.path.exists(path) else path + "-made"
    file = open(made, "a+b")
    file.truncate(4096)
    maps.append(mmap.mmap(file.fileno(), 4096))
    file.close()
    os.rename(made, path)  # as a semaphore gets its name
print(1, flush=True)
time.sleep(600)
"""


def marked(mark: str) -> set[int]:
    """Return every live process that has the mark in its environment."""
    found = psutil.process_iter(["environ"])
    return {each.pid for each in found if (each.info["environ"] or {}).get(MARK) == mark}


@pytest.fixture(autouse=True)
def mark(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Mark all that a test starts, of which nothing may be left."""
    mark = uuid.uuid4().hex
    monkeypatch.setenv(MARK, mark)
    yield mark
    left = marked(mark)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert not left


def server(name: str, port: int, path: str = "/ok", *more: str, failures: int = 50) -> Container:
    probe = Probe(path, port, period_s=0.2, timeout_s=1, failures=failures)
    command = (sys.executable, "-c", SERVER, str(port), *(more or ("plain",)))
    return Container(name, command, {}, startup=probe)


def test_a_pod_starts_in_order_and_leaves_nothing(mark: str, tmp_path: Path, unused_tcp_port: int) -> None:
    said: list[str] = []
    pod = LocalPod([server("one", unused_tcp_port, "/ok", "daemon")], tmp_path, said.append)
    try:
        pod.start()
        pod.check()
        assert len(marked(mark)) == 3  # guard, server, daemon
    finally:
        pod.stop()
    assert said[0] == "one: starting"
    assert said[1].startswith("one: started after ")


def test_the_second_container_waits_for_the_first(tmp_path: Path, unused_tcp_port: int) -> None:
    never = server("first", unused_tcp_port, "/never", failures=15)
    second = Container("second", (sys.executable, "-c", ""), {})
    pod = LocalPod([never, second], tmp_path, print)
    try:
        with pytest.raises(PodError, match=r"first is not started after 3 s: /never: 503 not yet") as caught:
            pod.start()
    finally:
        pod.stop()
    assert caught.value.log == "listening"
    assert not pod.log("second").exists()


@pytest.mark.parametrize(
    ("command", "status", "said"),
    [
        ((sys.executable, "-c", "print('no such model'); raise SystemExit(3)"), 3, "no such model"),
        ((sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"), 128 + signal.SIGKILL, ""),
        (("/no/such/program",), 127, "No such file"),
    ],
)
def test_a_container_that_ends_is_an_error_with_its_log(
    tmp_path: Path, unused_tcp_port: int, command: tuple[str, ...], status: int, said: str
) -> None:
    pod = LocalPod(
        [Container("engine", command, {}, startup=Probe("/ok", unused_tcp_port, 1, 1, 100))], tmp_path, print
    )
    with pytest.raises(PodError, match=f"engine ended with status {status}") as caught:
        pod.start()
    pod.stop()
    assert said in caught.value.log


def test_starting_can_be_given_up(tmp_path: Path, unused_tcp_port: int) -> None:
    pod = LocalPod([server("one", unused_tcp_port, "/never")], tmp_path, print, heard=[signal.SIGINT])
    with pytest.raises(StoppedError):
        pod.start()
    pod.stop()


def test_the_second_request_to_stop_kills(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("guided_operator.cli.local.pod.GRACE_S", math.inf)
    heard: list[int] = []
    deaf = LocalPod([Container("deaf", (sys.executable, "-c", DEAF), {})], tmp_path, print, heard=heard)
    deaf.start()
    eventually(lambda: deaf.log("deaf").read_text() == "1\n")
    heard += [signal.SIGINT, signal.SIGTERM]
    deaf.stop()


def test_nothing_outlives_a_killed_parent(mark: str, tmp_path: Path) -> None:
    folder = tmp_path / "pod"
    folder.mkdir()
    parent = textwrap.dedent(f"""
        import os, signal, sys, time
        from pathlib import Path
        from guided_operator.cli.local.pod import guarded
        log = Path({str(folder)!r}) / "log"
        guarded([sys.executable, "-c", {DAEMON!r}], log)
        while not log.read_text():
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGKILL)
    """)
    assert subprocess.run([sys.executable, "-c", parent], check=False).returncode == -signal.SIGKILL
    eventually(lambda: not marked(mark))
    eventually(lambda: not folder.exists())


def rests(process: psutil.Process) -> bool:
    """Whether a process reads nothing for a moment: the guard has looked at what is mapped."""
    before = process.io_counters().read_chars
    time.sleep(0.3)
    return bool(process.io_counters().read_chars == before)


@pytest.mark.parametrize("ending", ["term", "killed by others"])
def test_shared_memory_goes_with_the_processes_that_mapped_it(ending: str, tmp_path: Path) -> None:
    own, others = (Path(f"/dev/shm/gm-test-{uuid.uuid4().hex}") for _ in range(2))
    others.write_bytes(bytes(4096))
    try:
        process = guarded([sys.executable, "-c", SHARES, str(own), str(others)], tmp_path / "log")
        eventually(lambda: (tmp_path / "log").read_text() == "1\n")
        assert own.exists()
        if ending == "term":
            process.terminate()
        else:
            guard = psutil.Process(process.pid)
            begun = guard.io_counters().read_chars
            eventually(lambda: guard.io_counters().read_chars > begun)
            eventually(lambda: rests(guard))
            guard.children()[0].kill()
        assert process.wait(10)
        assert not own.exists()
        assert others.exists(), "it was there before: not ours to remove"
    finally:
        own.unlink(missing_ok=True)
        others.unlink(missing_ok=True)


def wait_with_a_signal(at: int) -> tuple[bool, int]:
    """Wait, with a SIGTERM at the `at`-th call or return within; return whether it was heard."""
    passed = 0

    def profile(*_: object) -> None:
        nonlocal passed
        passed += 1
        if passed == at:
            signal.raise_signal(signal.SIGTERM)

    with signals_kept() as heard:
        sys.setprofile(profile)
        try:
            time.sleep(0.0)
            len(heard)
        finally:
            sys.setprofile(None)
        return bool(heard), passed


def test_a_signal_at_any_moment_of_the_wait_is_heard() -> None:
    # Of threading.Event, whose lock a handler cannot get where the wait has it, 22 moments of 37 never end.
    for at in itertools.count(1):
        heard, passed = wait_with_a_signal(at)
        if at > passed:
            break
        assert heard
    assert at > 3
