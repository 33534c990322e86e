"""Records from the engine's processes: a unix datagram socket, and what spans and counts come of them."""

import asyncio
import contextlib
import math
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from opentelemetry.trace import Tracer

from guided_contract import records
from guided_contract.records import Decode, Digests, HttpRequest, ProcessorFailure
from guided_sidecar.telemetry import request_spans
from guided_sidecar.telemetry.decode_spans import Decodes
from guided_sidecar.telemetry.metrics import SidecarMetrics

_DATAGRAM_BYTES: Final = 64 << 10
# A unix socket queues few datagrams (net.unix.max_dgram_qlen, 10 in a pod), so they are taken many at a
# time; the bound lets other tasks run during a flood.
_DATAGRAMS_PER_WAKE: Final = 256


class TelemetryReceiver:
    """Turns records into spans and counts.

    Parameters
    ----------
    path
        The socket, made anew at `start` with mode 0600; what a dead service left there is replaced.
    decodes
        Takes the ranks' records of ended sequences.
    on_digests
        Takes the ranks' digests.
    on_failure
        Takes what ranks tell of logits processors that fail.

    Attributes
    ----------
    guided_served_s
        When a guided request was last answered well, by time.monotonic; -inf: never.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - whom records are for
        self,
        path: Path,
        tracer: Tracer,
        decodes: Decodes,
        counts: SidecarMetrics,
        on_digests: Callable[[Digests], None],
        on_failure: Callable[[ProcessorFailure], None],
    ) -> None:
        self._path = path
        self._tracer = tracer
        self._decodes = decodes
        self._counts = counts
        self._on_digests = on_digests
        self._on_failure = on_failure
        self._socket: socket.socket | None = None
        self.guided_served_s = -math.inf

    def start(self) -> None:
        """Bind the socket and listen.

        Raises
        ------
        OSError
            The folder is missing or not writable, or the path is too long for a socket.
        """
        self._socket = _bind(self._path)
        asyncio.get_running_loop().add_reader(self._socket.fileno(), self._read_some)

    def stop(self) -> None:
        """Take what has arrived, then close the socket; the file stays: it may be a successor's by now."""
        if self._socket is None:
            return
        asyncio.get_running_loop().remove_reader(self._socket.fileno())
        self._read_some()
        self._socket.close()
        self._socket = None

    def _read_some(self) -> None:
        assert self._socket is not None
        # All are fetched before the first is looked at, because senders lose what finds the queue full.
        arrived: list[bytes] = []
        with contextlib.suppress(BlockingIOError):
            while len(arrived) < _DATAGRAMS_PER_WAKE:
                arrived.append(self._socket.recv(_DATAGRAM_BYTES))
        for datagram in arrived:
            self._take(datagram)

    def _take(self, datagram: bytes) -> None:
        try:
            record = records.decode(datagram)
            root = request_spans.root(record) if isinstance(record, HttpRequest) else None
        except ValueError:
            self._counts.take_garbage()
            return
        self._counts.take(record)
        if isinstance(record, HttpRequest):
            if record.kind is not None and record.status == 200 and not record.error_code:
                self.guided_served_s = time.monotonic()
            if root is not None:
                request_spans.make(self._tracer, record, *root)
        elif isinstance(record, Decode):
            self._decodes.add(record)
        elif isinstance(record, Digests):
            self._on_digests(record)
        elif isinstance(record, ProcessorFailure):
            self._on_failure(record)


def _bind(path: Path) -> socket.socket:
    """Bind beside the path and rename: nobody can connect before the mode is right, or find no socket."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    fresh.unlink(missing_ok=True)
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
    try:
        bound.bind(str(fresh))
        fresh.chmod(0o600)
        fresh.replace(path)
    except OSError:
        bound.close()
        raise
    return bound
