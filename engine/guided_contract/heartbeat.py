"""Heartbeats in shared memory: who lives, and who makes steps.

Written by engine cores and workers, read by launcher and sidecar. The file holds SLOTS records: slot 0 is
the engine core, slot 1 + r its worker r; further cores (data parallelism) follow likewise. A record is five
unsigned 64-bit integers: pid, beat, steps, step time, busy. Times are CLOCK_MONOTONIC nanoseconds, which the
containers of a pod share.
"""

import mmap
import os
import struct
import time
from pathlib import Path
from typing import Final, NamedTuple, Self

SLOTS: Final = 129
_RECORD: Final = struct.Struct("<5Q")
FILE_BYTES: Final = SLOTS * _RECORD.size


def core_slot(engine: int, workers: int) -> int:
    """Return the slot of an engine core, the first of its own and its workers' `1 + workers` slots."""
    return engine * (1 + workers)


class Beat(NamedTuple):
    """One slot. pid 0: nobody has written it since the file was made.

    `busy` is the number of unfinished requests (engine core only); a busy core that makes no step is stalled.
    """

    pid: int
    beat_ns: int
    steps: int
    step_ns: int
    busy: int


class Heartbeats:
    """The mapped file. Each slot has one writer; a torn read can only make a beat look older."""

    def __init__(self, path: Path, *, writable: bool) -> None:
        access = mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ
        with path.open("r+b" if writable else "rb") as file:
            self._map = mmap.mmap(file.fileno(), FILE_BYTES, access=access)

    @classmethod
    def create(cls, path: Path) -> Self:
        """Make the file empty (a new engine start) and map it for writing."""
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        temporary.write_bytes(bytes(FILE_BYTES))
        temporary.replace(path)
        return cls(path, writable=True)

    def read(self, slot: int) -> Beat:
        """Return one slot."""
        return Beat(*_RECORD.unpack_from(self._map, slot * _RECORD.size))

    def write(self, slot: int, beat: Beat) -> None:
        """Replace one slot; for its only writer."""
        _RECORD.pack_into(self._map, slot * _RECORD.size, *beat)

    def close(self) -> None:
        """Unmap the file."""
        self._map.close()


def now_ns() -> int:
    """Return the clock that beats are told by."""
    return time.monotonic_ns()
