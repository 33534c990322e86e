"""Beats of this process in the pod's heartbeats file: a thread shows life, a counter steps."""

import contextlib
import logging
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

from guided_contract.heartbeat import Beat, Heartbeats, now_ns

INTERVAL_S: Final = 1.0
_log = logging.getLogger("guided_engine")


class Pulse:
    """Writes one slot.

    Parameters
    ----------
    path
        The heartbeats file; made by the launcher, and waited for.
    slot
        This process' slot.
    busy
        Returns the number of unfinished requests.
    """

    def __init__(self, path: Path, slot: int, busy: Callable[[], int] = lambda: 0) -> None:
        self._path = path
        self._slot = slot
        self._busy = busy
        self._steps = 0
        self._drafts = 0
        self._step_ns = now_ns()
        self._file: Heartbeats | None = None
        self._stopped = threading.Event()
        self._thread = threading.Thread(name="guided-pulse", target=self._run, daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self, timeout_s: float = 5.0) -> None:
        """End the thread."""
        self._stopped.set()
        self._thread.join(timeout_s)

    def step(self, drafts: int = 0) -> None:
        """Count a step that asked for so many draft tokens; costs nothing, the thread writes it."""
        self._steps += 1
        self._drafts = drafts
        self._step_ns = now_ns()

    def _run(self) -> None:
        while True:
            try:
                # The file may be missing for a while; the launcher sees a beat that is not written.
                with contextlib.suppress(OSError):
                    self.beat()
            except Exception:  # noqa: BLE001 - the thread lives as long as its process
                _log.exception("guidedmodel: a heartbeat failed")
            if self._stopped.wait(INTERVAL_S):
                return

    def beat(self) -> None:
        """Write the slot once.

        Raises
        ------
        OSError
            The file is not there.
        """
        if self._file is None:
            self._file = Heartbeats(self._path, writable=True)
        busy = self._busy()
        if not busy:
            # An idle engine makes no steps: the stall clock starts with the first request.
            self._step_ns = now_ns()
        self._file.write(
            self._slot, Beat(os.getpid(), now_ns(), self._steps, self._step_ns, busy, self._drafts)
        )
