"""`make bench-speculation`: what speculation is worth, by method, scheduling and load, guided and not.

On the virtual GPU of `make bench-ranks`, whose schemas, documents and engines these are, but with a forward
pass that takes longer once the device is full of tokens, and with each method's own cost of drafting
(`rankbench.methods`), at 0 draft tokens too. And with the tiny model and its draft model on real vLLM and a
real CPU (cells `cpu-...`), where drafting is not cheap beside the model, nor a full batch free.

Modelled: a pass over up to 300 tokens takes as long as over one, over more in proportion (a dense model of 16
bit on an H100: 990 TFLOP/s by 3.35 TB/s); EAGLE-3's drafts are right as often as a draft model's, so that
what differs is what they cost, and NGram's as often as prompt lookup was in JSON. Not modelled: attention
over what is in the KV cache, experts (a mixture of them is full of tokens much later), sampling that grows
with the batch, the host's work to launch a draft model without graphs, preemption.
"""

import itertools
import os
import sys
from typing import Final

from rankbench import picture, runs, table
from rankbench.cells import (
    ALWAYS,
    AUTO,
    BASELINE,
    BASELINE_SYNC,
    BY_HAND,
    FIXED,
    OURS,
    OURS_SYNC,
    SETS,
    UPSTREAM,
    UPSTREAM_SYNC,
    Cell,
    Mode,
)
from rankbench.clock import Costs
from rankbench.methods import METHODS
from rankbench.records import Record
from rankbench.speculation_bars import BATCHES, BY_LOAD, by_load, outcomes
from rankbench.tasks import Tasks

COSTS: Final = Costs(full_rows=300)
MODES: Final = (BASELINE, BASELINE_SYNC, *UPSTREAM, *UPSTREAM_SYNC, OURS, OURS_SYNC)
CHOOSING: Final = (AUTO, *ALWAYS, BY_HAND)  # in cells by load, and there alone
Found = dict[str, dict[str, Record]]  # cell -> mode -> record
_ALL: Final = (*BATCHES, 64, 256)


def default_cells() -> list[Cell]:
    """Return the cells that the bars name, first, and each method at each load."""
    bars = [
        Cell(1, 3, 64, "plain", 1.0),
        Cell(1, 3, 256, "plain", 1.0),
        Cell(1, 3, 64, "bounded", 1.0),
        Cell(1, 3, 64, "plain", 1.0, method="ngram"),
    ]
    methods = [Cell(1, 3, batch, "plain", 1.0, method=method) for method in METHODS for batch in sorted(_ALL)]
    fixed = [Cell(1, drafts, batch, "plain", 1.0) for drafts in FIXED for batch in sorted(_ALL)]
    dropped = [Cell(1, 3, 128, "plain", 1.0, method=method, dropped=3) for method in METHODS]
    real = [Cell(1, drafts, batch, Tasks.name, 1.0, is_real=True) for drafts in (0, 3) for batch in BATCHES]
    chosen = [by_load(batch, method) for method in BY_LOAD for batch in (*BATCHES, 0)]
    return list(dict.fromkeys([*bars, *methods, *fixed, *dropped, *real, *chosen]))


def known_cells() -> list[Cell]:
    """Return all cells that may be named."""
    named = (
        Cell(1, drafts, batch, schemas, 1.0, method=method, dropped=dropped)
        for drafts, batch, schemas, method in itertools.product((0, 1, 3, 7), _ALL, SETS, METHODS)
        for dropped in {0, drafts}
    )
    return [*default_cells(), *named]


def main() -> int:
    """Measure, print, and return 1 where a bar is missed."""
    cells, modes = default_cells(), [*MODES, *CHOOSING]
    if names := os.environ.get("CELLS", ""):
        cells = runs.chosen(names, ",", known_cells(), f"a cell is as ngram-k3-b64-plain, sets are {SETS}")
    if names := os.environ.get("MODES", ""):
        modes = _with_baseline(runs.chosen(names, ";", modes, "modes: " + "; ".join(m.name for m in modes)))
    place = runs.Place("bench-speculation")
    records, by_choice = (_measured(place, cells, modes, is_by_load=is_so) for is_so in (False, True))
    picture_of = picture.of_unguided(records)
    tables = [*table.lines(records, table.SPECULATION), *table.lines(by_choice, table.CHOOSING)]
    records |= by_choice
    judged = outcomes(records)
    conditions = [
        *place.conditions(COSTS),
        *(f"drafting, {name}: {method}" for name, method in METHODS.items()),
    ]
    text = "\n".join([*conditions, "", *tables, *table.bar_lines(judged)])
    place.write(text, {"bench-speculation.svg": picture_of}, records)
    return 1 if any(outcome.met is False for outcome in judged) else 0


def _measured(place: runs.Place, cells: list[Cell], modes: list[Mode], *, is_by_load: bool) -> Found:
    """Measure the cells by load, whose modes are their own, or the others; none whose modes are not named."""
    own = [mode for mode in modes if (mode in CHOOSING) is is_by_load]
    wanted = [cell for cell in cells if own and cell.is_by_load is is_by_load]
    return runs.measured(place, wanted, own, COSTS)


def _with_baseline(modes: list[Mode]) -> list[Mode]:
    is_apart = all(mode in CHOOSING for mode in modes)  # in cells of their own, with each other alone
    return modes if BASELINE in modes or is_apart else [BASELINE, *modes]


if __name__ == "__main__":
    sys.exit(main())
