"""What a run found, a line of JSON per cell and mode, so that it can go on where it stopped."""

from collections.abc import Iterator
from pathlib import Path

import msgspec


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """One mode in one cell; a value per repetition, paired by index with the other modes' of the cell.

    `reason` says why there are none; `failed`, that there should be. `is_checked`: masks are to be compared.
    `mask_bytes` are of the whole measurement, from the engine core.
    """

    cell: str
    mode: str
    reason: str = ""
    failed: bool = False
    is_checked: bool = False
    tokens_per_s: list[float] = []
    gpu_busy: list[float] = []
    exposed_us: list[float] = []  # GPU idle per step
    late_mask_us: list[float] = []  # of it, waiting for masks
    cpu_s_per_1000: list[float] = []  # seconds of CPU per 1,000 tokens
    step_ms: list[float] = []
    accepted: list[float] = []  # draft tokens of a step and sequence
    token_p50_ms: list[float] = []  # of the sequences' times per token behind the first
    token_p99_ms: list[float] = []
    mask_bytes: int = 0
    lost_drafts: int = 0
    forbidden: int = 0
    asked: dict[int, int] = {}  # measured steps, by the draft tokens that the scheduler asked for
    untimed: int = 0  # batches served until a choice by load was settled
    compared: int = 0
    faults: list[str] = []


class Journal:
    """Records in a file, one run's after another's."""

    def __init__(self, path: Path) -> None:
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)

    def __iter__(self) -> Iterator[Record]:
        if self._path.exists():
            for line in self._path.read_bytes().splitlines():
                yield msgspec.json.decode(line, type=Record)

    def append(self, record: Record) -> None:
        """Add one record."""
        with self._path.open("ab") as file:
            file.write(msgspec.json.encode(record) + b"\n")
