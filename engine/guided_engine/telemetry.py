"""Sends telemetry records to the sidecar: one datagram each, never waiting."""

import contextlib
import queue
import socket
import struct
import threading
from pathlib import Path
from typing import Final

import msgspec

from guided_contract import records
from guided_contract.records import AnyRecord

_LATE_RECORDS: Final = 4096
# struct timeval: a sidecar that reads nothing for so long hangs. On a busy node it gets little CPU beside
# the engine, and one second is not enough.
_LATE_TIMEOUT: Final = struct.pack("ll", 10, 0)


class Telemetry:
    """A sender of records. What the sidecar does not take soon is dropped and counted.

    A pod's datagram socket queues ten datagrams (net.unix.max_dgram_qlen), and sequences end by the dozen in
    one step. What finds the queue full is sent by a thread, which is started when first needed.

    Parameters
    ----------
    path
        The sidecar's datagram socket; it may come and go.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.dropped = 0  # records lost since the last one that was taken
        self._socket: socket.socket | None = None
        self._late: queue.Queue[bytes | None] = queue.Queue(_LATE_RECORDS)
        self._sender: threading.Thread | None = None

    def send(self, record: AnyRecord) -> None:
        """Send one record, or drop it; the next one that is taken tells how many were dropped before it."""
        datagram = records.encode(msgspec.structs.replace(record, dropped=self.dropped))
        if self._socket is None:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            self._socket.setblocking(False)
        try:
            # Addressed anew each time: a restarted sidecar binds a new socket at the same path.
            self._socket.sendto(datagram, str(self.path))
        except BlockingIOError:
            self._send_late(datagram)
        except OSError:
            self.dropped += 1
        else:
            self.dropped = 0

    def close(self) -> None:
        """Close the socket; a later `send` opens a new one."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        with contextlib.suppress(queue.Full):
            self._late.put_nowait(None)

    def _send_late(self, datagram: bytes) -> None:
        try:
            self._late.put_nowait(datagram)
        except queue.Full:
            self.dropped += 1
            return
        self.dropped = 0
        if self._sender is None or not self._sender.is_alive():  # none yet, or lost in a fork
            self._sender = threading.Thread(target=self._send_queued, name="guided-telemetry", daemon=True)
            self._sender.start()

    def _send_queued(self) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as waiting:
            # In the kernel: poll, which a Python timeout uses, always calls an unconnected socket writable.
            waiting.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _LATE_TIMEOUT)
            while (datagram := self._late.get()) is not None:
                try:
                    waiting.sendto(datagram, str(self.path))
                except OSError:
                    self.dropped += 1
