"""The bars of `make bench-speculation`, each a judgement over the records of one run."""

from collections.abc import Iterable, Mapping
from typing import Final

from rankbench import statistics
from rankbench.bars import Outcome, Records
from rankbench.cells import (
    ALWAYS,
    AUTO,
    BASELINE,
    BY_HAND,
    OURS,
    OURS_SYNC,
    UPSTREAM,
    UPSTREAM_SYNC,
    Cell,
    Mode,
)
from rankbench.records import Record

BATCHES: Final = (1, 8, 32, 128)
BY_LOAD: Final = ("draft", "eagle3")  # methods: the passes of the first follow the configuration alone
_AT: Final = Cell(1, 3, 64, "plain", 1.0)
_FULL: Final = Cell(1, 3, 256, "plain", 1.0)
_BOUNDED: Final = Cell(1, 3, 64, "bounded", 1.0)
_NGRAM: Final = Cell(1, 3, 64, "plain", 1.0, method="ngram")


def by_load(batch: int, method: str) -> Cell:
    """Return the cell of `numTokens: Auto` at a number of sequences; 0: at one that changes."""
    return Cell(1, 3, batch, "plain", 1.0, method=method, is_by_load=True, is_changing=not batch)


def outcomes(records: Records) -> list[Outcome]:
    """Judge all bars."""
    return [
        _least("ours >= 0.97 of unguided", 0.97, {_AT.name: _to(records, _AT, OURS, [BASELINE])}),
        _least("ours >= 1.5 times upstream, sync", 1.5, {_AT.name: _to(records, _AT, OURS, UPSTREAM_SYNC)}),
        _either(
            "ours >= 1.2 times upstream, async: with 256 sequences, or with bounded strings",
            1.2,
            {cell.name: _to(records, cell, OURS, UPSTREAM) for cell in (_FULL, _BOUNDED)},
        ),
        _least(
            "ours: async >= 0.98 of sync, in every cell",
            0.98,
            {name: _ratio(modes, OURS, [OURS_SYNC]) for name, modes in records.items()},
        ),
        _least("NGram: async >= 1.1 times sync", 1.1, {_NGRAM.name: _to(records, _NGRAM, OURS, [OURS_SYNC])}),
        _least(
            "K by load >= 0.97 of the best fixed K",
            0.97,
            {
                cell.name: _to(records, cell, AUTO, ALWAYS)
                for cell in (by_load(batch, method) for method in BY_LOAD for batch in BATCHES)
                if all(_is_measured(records, cell, mode) for mode in ALWAYS)  # each may be the best
            },
        ),
        _least(
            "K by load better than a schedule by hand, on a load that changes",
            1.0,
            {cell.name: _to(records, cell, AUTO, [BY_HAND]) for cell in (by_load(0, m) for m in BY_LOAD)},
        ),
        _accepted(records),
        _served(records),
    ]


def _is_measured(records: Records, cell: Cell, mode: Mode) -> bool:
    found = records.get(cell.name, {}).get(mode.name)
    return found is not None and bool(found.tokens_per_s)


def _to(records: Records, cell: Cell, ours: Mode, theirs: Iterable[Mode]) -> statistics.Bounded | None:
    return _ratio(records.get(cell.name, {}), ours, theirs)


def _ratio(modes: Mapping[str, Record], ours: Mode, theirs: Iterable[Mode]) -> statistics.Bounded | None:
    """Return a mode's tokens a second over those of the fastest of others; None: not measured."""
    found = [modes[mode.name] for mode in theirs if mode.name in modes]
    measured = [record for record in found if record.tokens_per_s]
    own = modes.get(ours.name)
    if own is None or not own.tokens_per_s or not measured:
        return None
    best = max(measured, key=lambda record: statistics.mean(record.tokens_per_s).value)
    return statistics.paired_ratio(own.tokens_per_s, best.tokens_per_s)


def _least(asks: str, least: float, found: Mapping[str, statistics.Bounded | None]) -> Outcome:
    """Judge the smallest of some ratios."""
    told = {name: ratio for name, ratio in found.items() if ratio is not None}
    if not told:
        return Outcome(asks, "not measured", None)
    worst = min(told, key=lambda name: told[name].value)
    of = f" in {len(told)} cells" if len(told) > 1 else ""
    return Outcome(asks, f"{_shown(told[worst])}, {worst}{of}", told[worst].value >= least)


def _either(asks: str, least: float, found: Mapping[str, statistics.Bounded | None]) -> Outcome:
    """Judge the largest of some ratios, and tell all."""
    told = {name: ratio for name, ratio in found.items() if ratio is not None}
    if not told:
        return Outcome(asks, "not measured", None)
    text = "; ".join(f"{_shown(ratio)}, {name}" for name, ratio in told.items())
    return Outcome(asks, text, max(ratio.value for ratio in told.values()) >= least)


def _accepted(records: Records) -> Outcome:
    """Judge that guiding costs no accepted draft: what a grammar forbids, unguided the model refuses."""
    asks = "as many drafts accepted guided as unguided, and no right one refused"
    lost, apart = 0, {}
    for name, modes in records.items():
        both = [modes.get(mode.name) for mode in (OURS, BASELINE)]
        lost += sum(record.lost_drafts for record in modes.values())
        if all(record is not None and record.accepted for record in both):
            ours, unguided = (statistics.mean(record.accepted).value for record in both if record)
            apart[name] = ours - unguided
    if not apart:
        return Outcome(asks, "not measured", None)
    worst = min(apart, key=lambda name: apart[name])
    text = f"{apart[worst]:+.3f} a step, {worst}, the worst of {len(apart)} cells; {lost} right ones refused"
    return Outcome(asks, text, apart[worst] > -0.01 and not lost)


def _served(records: Records) -> Outcome:
    """Judge that what was measured is right: batches served to their end, masks as a fresh matcher's."""
    found = [record for modes in records.values() for record in modes.values()]
    wrong = [r for r in found if r.failed or r.faults or r.forbidden or (r.is_checked and not r.compared)]
    text = "; ".join(f"{r.cell}, {r.mode}: {r.reason or r.faults[:1] or r.forbidden}" for r in wrong)
    rows = sum(record.compared for record in found)
    return Outcome(
        "every batch served, its masks a fresh matcher's", text or f"yes, {rows} rows compared", not wrong
    )


def _shown(bounded: statistics.Bounded) -> str:
    return f"{bounded.value:.3f} ({bounded.low:.3f} to {bounded.high:.3f})"
