"""Takes ranks' records from the telemetry socket, and compares their digests as the sidecar does."""

import contextlib
import socket
import threading
from collections.abc import Iterable
from typing import Any, Self

from guided_contract import records
from guided_contract.config import PodConfig
from guided_contract.wire import Failed
from guided_sidecar.ranks.agreement import PATIENCE_S, Agreement
from support.engine import wait_until


class Comparing:
    """A real agreement behind the pod's telemetry socket, until `stop`."""

    def __init__(self, pod: PodConfig) -> None:
        self._now_s = 0.0
        self._agreement = Agreement(pod.tensor_parallel, lambda: self._now_s)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(pod.telemetry_socket))
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join(5)
        self._socket.close()

    def outcome(self, failed: Iterable[Failed]) -> dict[str, Any]:
        """Return what came of it, once nothing is on its way any more: what waits then is lost.

        `failed`: what the ranks gave up, which the sidecar does not wait for.
        """
        for one in failed:
            self._agreement.fail(one)
        with contextlib.suppress(AssertionError):
            wait_until(lambda: not self._agreement._pending, 10)
        self._now_s += PATIENCE_S
        state = self._agreement.state
        return {"compared": state.compared, "desyncs": dict(state.desyncs), "lost": state.lost}

    def _read(self) -> None:
        while datagram := self._socket.recv(64 << 10):
            record = records.decode(datagram)
            if isinstance(record, records.Digests):
                self._agreement.receive(record)
