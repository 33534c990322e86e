"""What was measured, kept in a file so that a run goes on where the last one stopped."""

from pathlib import Path

import msgspec


class Sample(msgspec.Struct, frozen=True):
    """One answer: `stage` is cold or memory; `outcome` a backend, or why there is none.

    `took_s`: until it was proven and loaded. `begun_s`: until ranks had it, and the engine might begin.
    """

    stage: str
    source: str
    took_s: float
    outcome: str
    is_prepared: bool
    begun_s: float = 0.0


class Record(msgspec.Struct):
    """All samples of one mode, and its proofs by what came of them."""

    mode: str
    samples: list[Sample] = []
    proofs: dict[str, float] = {}


class Usage(msgspec.Struct):
    """What many different schemas left behind, beside what the first of them had."""

    schemas: int
    took_s: float
    memory_before: int  # bytes, shared pages counted once
    memory_after: int
    refused: int


class Records:
    """A run's file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.modes: dict[str, Record] = {}
        self.usage: Usage | None = None
        self.burst: list[float] | None = None  # seconds of each of many new schemas at once
        if path.exists():
            self.modes, self.usage, self.burst = msgspec.json.decode(
                path.read_bytes(), type=tuple[dict[str, Record], Usage | None, list[float] | None]
            )

    def add(self, record: Record) -> None:
        """Keep a mode's record."""
        self.modes[record.mode] = record
        self.save()

    def save(self) -> None:
        """Write the file."""
        self._path.write_bytes(msgspec.json.encode((self.modes, self.usage, self.burst)))
