"""The program that plays nodes and users (player/main.go)."""

import json
import queue
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from devtools import golang

from guided_contract import status
from support.kubelet import ready_page
from support.resources import model

NAMESPACE = "bench"
Report = dict[str, Any]


class PlayerError(Exception):
    """It ended, or did not report what was waited for in time."""


class Player:
    """One running player; as a context it ends with it."""

    def __init__(self, child: "subprocess.Popen[str]") -> None:
        self._child = child
        self._reports: queue.Queue[Report | None] = queue.Queue()
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    @classmethod
    def start(cls, folder: Path, kubeconfig: Path) -> Self:
        """Start it, and wait until it plays."""
        (folder / "model.json").write_text(json.dumps(model(NAMESPACE)))
        (folder / "page.json").write_bytes(status.encode(ready_page()))
        with (folder / "player.log").open("w") as log:
            child = subprocess.Popen(
                [
                    *("/usr/bin/setpriv", "--pdeathsig", "KILL", golang.player() / "player"),
                    *("--kubeconfig", kubeconfig, "--namespace", NAMESPACE),
                    *("--model", folder / "model.json", "--page", folder / "page.json"),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        player = cls(child)
        player.wait_for(lambda report: report["event"] == "started", 60)
        return player

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._child.stdin is not None
        self._child.stdin.close()  # it ends with its orders
        try:
            self._child.wait(10)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
        self._listener.join()
        assert self._child.stdout is not None
        self._child.stdout.close()

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._child.pid

    def order(self, what: str, **values: float) -> None:
        """Give an order."""
        assert self._child.stdin is not None
        self._child.stdin.write(json.dumps({"do": what, **values}) + "\n")
        self._child.stdin.flush()

    def wait_for(self, is_wanted: Callable[[Report], bool], timeout_s: float) -> Report:
        """Return the first report of this kind.

        Raises
        ------
        PlayerError
            It ended, or none came in time.
        """
        last: Report | None = None
        try:
            while (report := self._reports.get(timeout=timeout_s)) is not None:
                if is_wanted(report):
                    return report
                last = report
        except queue.Empty:
            raise PlayerError(f"nothing new for {timeout_s:g} s after {last}") from None
        raise PlayerError(f"the player ended after {last}")

    def _listen(self) -> None:
        assert self._child.stdout is not None
        for line in self._child.stdout:
            self._reports.put(json.loads(line))
        self._reports.put(None)
