"""`make bench-processors`; see benchmarks/README.md for its variables."""

import gc
import os
import sys
from pathlib import Path
from typing import Final

import commit
import msgspec
import torch
import vocabulary
from devtools import cache

if not torch.cuda.is_available():
    import vllm.v1.worker.cpu.shm  # noqa: F401 - a CPU's memory counts as pinned

from vllm.triton_utils import HAS_TRITON

from processorbench import logits, report
from processorbench.cells import Cell
from processorbench.rank import Rank, Text
from processorbench.report import Found

_CELLS: Final = [Cell(batch, drafts) for drafts in (0, 3) for batch in (1, 64, 256)]
_REPETITIONS: Final = 30
_WARM: Final = 3
_EACH: Final = 6  # so manieth repetition takes the logits of a CPU, too, which are half a gigabyte


def main() -> int:
    """Measure, print, and return 1 where a bar is missed."""
    torch.set_num_threads(1)
    names = os.environ.get("CELLS", "")
    cells = [cell for cell in _CELLS if not names or cell.name in names.split(",")]
    repetitions = int(os.environ.get("REPS") or _REPETITIONS)
    out = Path(os.environ.get("OUT") or cache.root() / "bench-processors" / commit.name())
    out.mkdir(parents=True, exist_ok=True)
    text = Text()
    found = [_measured(text, cell, repetitions) for cell in cells]
    (out / "records.json").write_bytes(msgspec.json.encode(found))
    cores = os.cpu_count()
    about = f"commit {commit.name()}, {cores} cores, {repetitions} repetitions; {vocabulary.SIZE} tokens"
    page = "\n".join([about, "", *report.lines(found)])
    (out / "report.md").write_text(page + "\n")
    print(page)
    print(f"\nwritten to {out}")
    return 1 if any(bar.met is False for bar in report.bars(found)) else 0


def _measured(text: Text, cell: Cell, repetitions: int) -> Found:
    """Measure a cell: all that is compared takes its turn in each repetition."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    found = Found(cell.name, device, device_bytes=logits.held_bytes(cell, device))
    ranks = [(mode.name, Rank(text, mode, cell)) for mode in text.modes()]
    gc.collect()
    gc.freeze()  # as vLLM's workers do
    for repetition in range(-_WARM, repetitions):
        # Whoever comes second finds what the first had in the caches: each pair has both orders.
        turn, order = repetition // 2 % len(ranks), 1 if repetition % 2 else -1
        for name, rank in (*ranks[turn:], *ranks[:turn])[::order]:
            took = rank.step()
            if repetition >= 0:
                for part, spent in took.items():
                    found.host.setdefault(name, {}).setdefault(part, []).append(spent)
    for name, rank in ranks:
        if ways := logits.on_cpu(rank, cell):
            found.cpu[name] = _turns(ways, max(2, repetitions // _EACH), "cpu")
        found.ids[name] = 0 if rank.edits is None else len(rank.edits.ids)
    gc.unfreeze()
    if HAS_TRITON:
        found.device_us = _turns(logits.on_device(cell, device), repetitions, device)
    return found


def _turns(ways: dict[str, logits.Way], repetitions: int, device: str) -> dict[str, list[float]]:
    took: dict[str, list[float]] = {name: [] for name in ways}
    for repetition in range(-1, repetitions):
        for name, way in ways.items():
            us = logits.taken_us(way, device)
            if repetition >= 0:
                took[name].append(us)
    return took


if __name__ == "__main__":
    sys.exit(main())
