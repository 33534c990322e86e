"""`make bench-ranks`; see benchmarks/README.md for its variables."""

import os
import sys
from pathlib import Path

from rankbench import picture, runs, speculation, table
from rankbench.bars import outcomes
from rankbench.cells import BASELINE, MODES, OURS_APART, OURS_DRY, SETS, Cell, Mode, default_cells, grid
from rankbench.clock import FLAT
from rankbench.records import Journal, Record


def main() -> int:
    """Measure, print, and return 1 where a bar is missed."""
    wanted = _cells(os.environ.get("ROWS", ""))
    modes = _modes(os.environ.get("MODES", ""))
    place = runs.Place("bench-ranks")
    records = runs.measured(place, wanted, modes, FLAT)
    judged = outcomes(records, _before(wanted, modes))
    conditions = [
        *place.conditions(FLAT),
        f"drafts: right with probability {speculation.ACCEPTANCE} where those before were; same seed for all",
    ]
    text = "\n".join([*conditions, "", *table.lines(records, table.RANKS), *table.bar_lines(judged)])
    place.write(text, {"gpu-busy.svg": picture.gpu_busy(records)}, records)
    return 1 if any(outcome.met is False for outcome in judged) else 0


def _before(wanted: list[Cell], modes: list[Mode]) -> dict[str, dict[str, Record]]:
    """Return what an earlier run found, for the bars that ask for two."""
    before = os.environ.get("BEFORE")
    return runs.latest(Journal(Path(before) / "records.jsonl"), wanted, modes) if before else {}


def _cells(names: str) -> list[Cell]:
    everything = list(grid()) if os.environ.get("FULL") == "1" else default_cells()
    if not names:
        return everything
    return runs.chosen(names, ",", (*everything, *grid()), f"a row is as k3-b64-plain, sets are {SETS}")


def _modes(names: str) -> list[Mode]:
    if not names:
        return list(MODES)
    known = (*MODES, OURS_APART, OURS_DRY)
    modes = runs.chosen(names, ";", known, f"modes: {'; '.join(mode.name for mode in known)}")
    return modes if BASELINE in modes else [BASELINE, *modes]


if __name__ == "__main__":
    sys.exit(main())
