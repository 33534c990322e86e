"""Sends telemetry records to the sidecar: one datagram each, never waiting."""

import dataclasses
import socket
from pathlib import Path

import msgspec

from guided_contract import records
from guided_contract.records import AnyRecord


@dataclasses.dataclass(slots=True)
class Telemetry:
    """A sender of records. What the socket does not take at once is dropped and counted.

    Parameters
    ----------
    path
        The sidecar's datagram socket; it may come and go.
    """

    path: Path
    dropped: int = 0  # records lost since the last one that was taken
    _socket: socket.socket | None = None

    def send(self, record: AnyRecord) -> None:
        """Send one record, or drop it; the next one that is taken tells how many were dropped before it."""
        datagram = records.encode(msgspec.structs.replace(record, dropped=self.dropped))
        if self._socket is None:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            self._socket.setblocking(False)
        try:
            # Addressed anew each time: a restarted sidecar binds a new socket at the same path.
            self._socket.sendto(datagram, str(self.path))
        except OSError:
            self.dropped += 1
        else:
            self.dropped = 0

    def close(self) -> None:
        """Close the socket; a later `send` opens a new one."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
