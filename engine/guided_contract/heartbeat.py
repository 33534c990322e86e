"""Heartbeats in shared memory: written by engine cores and workers, read by launcher and sidecar.

The file holds SLOTS records: slot 0 is the engine core, slot 1 + r its worker r; further cores (data
parallelism) follow likewise. A record is a Beat in unsigned 64-bit integers; times are CLOCK_MONOTONIC
nanoseconds, which the containers of a pod share.
"""

import os
import struct
import time
from pathlib import Path
from typing import Final, NamedTuple, Self

SLOTS: Final = 129
_RECORD: Final = struct.Struct("<6Q")
FILE_BYTES: Final = SLOTS * _RECORD.size


def core_slot(engine: int, workers: int) -> int:
    """Return the slot of engine core `engine` (from 0), followed by those of its `workers` workers."""
    return engine * (1 + workers)


class Beat(NamedTuple):
    """One slot. pid 0: nobody has written it since the file was made.

    `beat_ns` and `step_ns` are the times of the last beat and the last of `steps` since the process started.
    Of engine cores alone: `busy` unfinished requests, and `drafts` of each sequence in its last step.
    """

    pid: int = 0
    beat_ns: int = 0
    steps: int = 0
    step_ns: int = 0
    busy: int = 0
    drafts: int = 0


class Heartbeats:
    """The open file. Each slot has one writer; a torn read can only make a beat look older.

    It is not mapped: one that somebody cut would end every process that has it mapped.
    """

    def __init__(self, path: Path, *, writable: bool) -> None:
        access = os.O_RDWR if writable else os.O_RDONLY
        self._file = os.open(path, access | os.O_CLOEXEC | os.O_NONBLOCK)

    @classmethod
    def create(cls, path: Path) -> Self:
        """Make the file empty (a new engine start) and open it for writing."""
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        temporary.write_bytes(bytes(FILE_BYTES))
        temporary.replace(path)
        return cls(path, writable=True)

    def read(self, slot: int) -> Beat:
        """Return one slot.

        Raises
        ------
        OSError
            It is no file.
        """
        record = os.pread(self._file, _RECORD.size, slot * _RECORD.size)
        return Beat(*_RECORD.unpack(record)) if len(record) == _RECORD.size else Beat()

    def write(self, slot: int, beat: Beat) -> None:
        """Replace slot `slot` (0 to SLOTS - 1); only its own writer may."""
        os.pwrite(self._file, _RECORD.pack(*beat), slot * _RECORD.size)

    def close(self) -> None:
        """Close the file; after the last use."""
        os.close(self._file)


def now_ns() -> int:
    """Return the clock of all beats: monotonic nanoseconds, the same for all processes of a machine."""
    return time.monotonic_ns()
