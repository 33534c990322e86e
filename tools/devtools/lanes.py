"""Runs every test tier, in two lanes beside one another where there are CPUs for both.

What shares an engine or a cluster is in one lane, one pytest process. A lane alone leaves most CPUs idle: it
waits for an engine that loads, or for controllers that act.
"""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
FEWEST_CPUS: Final = 4  # a lane takes up to two, and tests of deadlines need what they need
_NODE: Final = ("test_cluster_", "test_node")  # begin the names of modules that need the real node
_APART: Final = ("test_operator_watch",)  # of the cluster: its API server is struck, and no kubelet is played
_ALIKE: Final = ("tests/unit", "tests/contract")
_ENGINES: Final = ("tests/engine", "tests/property")
_FAILURES: Final = ("FAILED ", "ERROR ")  # begin pytest's lines of its short summary
_SHOWN: Final = 400  # characters of one; they are told last, for CI may keep but the end of what a run says


def lanes() -> dict[str, tuple[str, ...]]:
    """Return what each lane runs, in this order."""
    on_cluster, apart = _parted("tests/cluster", _APART)
    others, on_node = _parted("tests/e2e", _NODE)
    return {"parts": (*_ALIKE, *on_cluster, *on_node), "engines": (*_ENGINES, *others, *apart)}


def _parted(folder: str, names: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return a folder's modules: those whose names begin otherwise, and those whose names begin so."""
    modules = sorted(path.relative_to(ROOT) for path in (ROOT / folder).glob("test_*.py"))
    named = tuple(str(path) for path in modules if path.name.startswith(names))
    return tuple(str(path) for path in modules if str(path) not in named), named


class Lane:
    """One pytest process; what it says is passed on line by line, with the lane's name."""

    def __init__(self, name: str, paths: Sequence[str], arguments: Sequence[str]) -> None:
        self.name = name
        self.last = ""
        self.failures: list[str] = []
        command = [
            sys.executable,
            "-m",
            "pytest",
            *arguments,
            "-o",
            f"cache_dir=.pytest_cache/{name}",
            *paths,
        ]
        self._began = time.monotonic()
        self._took_s = 0.0
        self._child = subprocess.Popen(  # noqa: S603 - pytest
            command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self._reader = threading.Thread(target=self._pass_on, daemon=True)
        self._reader.start()

    def wait(self) -> int:
        """Return the exit status."""
        self._reader.join()
        status = self._child.wait()
        self.last = f"{self.name}: {self.last.strip('= ')}, exit status {status}, {self._took_s:.0f} s"
        return status

    def stop(self) -> None:
        """Interrupt it as Ctrl-C would, so that fixtures end what they started."""
        with contextlib.suppress(ProcessLookupError):
            self._child.send_signal(signal.SIGINT)

    def _pass_on(self) -> None:
        assert self._child.stdout is not None
        for line in self._child.stdout:
            self.last = line.strip() or self.last
            if line.startswith(_FAILURES):
                self.failures.append(line.strip()[:_SHOWN])
            print(f"{self.name:>7} | {line}", end="", flush=True)  # noqa: T201 - what the command is for
        self._took_s = time.monotonic() - self._began


def main() -> None:
    """Run all tests; arguments are pytest's. Exit with 0 where all passed."""
    found = lanes()
    if len(os.sched_getaffinity(0)) < FEWEST_CPUS:
        found = {"all": tuple(path for paths in found.values() for path in paths)}
    running = [Lane(name, paths, sys.argv[1:]) for name, paths in found.items()]
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the lanes themselves
    signal.signal(signal.SIGTERM, lambda *_: _stop(running))
    statuses = [lane.wait() for lane in running]
    for lane in running:
        print(*lane.failures, lane.last, sep="\n", flush=True)  # noqa: T201 - likewise
    sys.exit(max(statuses))


def _stop(running: Sequence[Lane]) -> None:
    for lane in running:
        lane.stop()


if __name__ == "__main__":
    main()
