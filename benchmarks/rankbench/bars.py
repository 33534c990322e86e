"""The bars of the benchmark, each a judgement over the records of one run."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from rankbench import statistics
from rankbench.cells import BASELINE, OURS, OURS_DRY, UPSTREAM, UPSTREAM_SYNC, WITH_PLUGIN, Cell, Mode
from rankbench.records import Record

Records = Mapping[str, Mapping[str, Record]]  # cell -> mode -> record
_EACH_ASKS: Final = "over all cells: none below 0.97 of upstream's better backend in two runs"
_PLUGIN_ASKS: Final = "unguided traffic with the plugin >= 0.97 of vLLM without it, in every cell of two runs"
_UPSTREAM: Final = [mode.name for mode in (*UPSTREAM, *UPSTREAM_SYNC)]


@dataclass(frozen=True, slots=True)
class Outcome:
    """One bar: what it asks, what was found, and whether that suffices; `met` None: not measured."""

    asks: str
    found: str
    met: bool | None


def outcomes(records: Records, before: Records) -> list[Outcome]:
    """Judge all bars.

    Parameters
    ----------
    before
        What an earlier run found; empty where there was none.
    """
    return [
        _busy(records, Cell(1, 3, 64, "plain", 1.0), 0.98, 0.95),
        _busy(records, Cell(1, 3, 256, "plain", 1.0), 0.85, 0.85),
        _busy(records, Cell(1, 3, 64, "plain", 1.0), 0.98, 0.95, OURS_DRY),
        _better(records, Cell(1, 3, 256, "plain", 1.0), 2.4),
        _busy(records, Cell(1, 3, 64, "bounded", 1.0), 0.95, 0.95),
        _busy(records, Cell(1, 0, 256, "plain", 1.0), 0.95, 0.85),
        *(
            _unguided_ratio(records, Cell(1, drafts, batch, "plain", 1.0), 0.97)
            for drafts in (0, 3)
            for batch in (64, 128)
        ),
        _grammar_cpu(records),
        _middle(records),
        _two_runs(_EACH_ASKS, [_to_better(run) for run in (records, before)]),
        _two_runs(_PLUGIN_ASKS, [_plugin_costs(run) for run in (records, before)]),
        _all_served(records),
        _no_masks_shipped(records),
        _masks_right(records),
    ]


def _busy(records: Records, cell: Cell, least: float, least_ratio: float, mode: Mode = OURS) -> Outcome:
    asks = f"{cell.name}, {mode.name}: GPU-busy >= {least}, tok/s >= {least_ratio} of unguided"
    pair = _pair(records, cell.name, mode.name, BASELINE.name)
    if pair is None:
        return Outcome(asks, "not measured", None)
    ours, unguided = pair
    busy = statistics.mean(ours.gpu_busy)
    ratio = statistics.paired_ratio(ours.tokens_per_s, unguided.tokens_per_s)
    return Outcome(
        asks, f"{_shown(busy)}, {_shown(ratio)}", busy.value >= least and ratio.value >= least_ratio
    )


def _better(records: Records, cell: Cell, least: float) -> Outcome:
    asks = f"{cell.name}: >= {least} times upstream's better backend"
    ratio = ratio_to_better(records.get(cell.name, {}))
    if ratio is None:
        return Outcome(asks, "not measured", None)
    return Outcome(asks, _shown(ratio), ratio.value >= least)


def _unguided_ratio(records: Records, cell: Cell, least: float) -> Outcome:
    asks = f"{cell.name}: guided over unguided >= {least}"
    pair = _pair(records, cell.name, OURS.name, BASELINE.name)
    if pair is None:
        return Outcome(asks, "not measured", None)
    ratio = statistics.paired_ratio(pair[0].tokens_per_s, pair[1].tokens_per_s)
    return Outcome(asks, _shown(ratio), ratio.value >= least)


def _grammar_cpu(records: Records) -> Outcome:
    asks = "TP 4, k=3, B=64: CPU of ours less that of unguided <= 1.5 times that at TP 1"
    costs = [
        statistics.mean(pair[0].cpu_s_per_1000).value - statistics.mean(pair[1].cpu_s_per_1000).value
        for ranks in (1, 4)
        if (pair := _pair(records, Cell(ranks, 3, 64, "plain", 1.0).name, OURS.name, BASELINE.name))
        and pair[0].cpu_s_per_1000
    ]
    if len(costs) < 2:
        return Outcome(asks, "not measured", None)
    found = f"{costs[1] / costs[0]:.2f} ({costs[0]:.3f} and {costs[1]:.3f} s per 1,000 tokens)"
    return Outcome(asks, found, costs[1] <= 1.5 * costs[0])


def _middle(records: Records) -> Outcome:
    asks = "over all cells: geometric mean of ours over upstream's better backend >= 1.0"
    ratios = _to_better(records)
    if not ratios:
        return Outcome(asks, "not measured", None)
    middle = statistics.geometric_mean(list(ratios.values()))
    return Outcome(asks, f"{middle:.3f} over {len(ratios)} cells", middle >= 1.0)


def _two_runs(asks: str, runs: Sequence[Mapping[str, float]]) -> Outcome:
    """Judge that no cell is below 0.97 in this run, nor in the one before if that was given."""
    if not runs[0]:
        return Outcome(asks, "not measured", None)
    least = []
    for name, ratios in zip(("least", "in the run before"), runs, strict=True):
        if ratios:
            worst = min(ratios, key=lambda cell: ratios[cell])
            least.append((ratios[worst], f"{name} {ratios[worst]:.3f}, {worst}"))
    text = "; ".join(text for _, text in least) + ("" if runs[1] else "; one run (BEFORE= names another)")
    return Outcome(asks, text, all(ratio >= 0.97 for ratio, _ in least))


def _to_better(records: Records) -> dict[str, float]:
    return {
        cell: ratio.value for cell, modes in records.items() if (ratio := ratio_to_better(modes)) is not None
    }


def _plugin_costs(records: Records) -> dict[str, float]:
    return {
        cell: statistics.paired_ratio(pair[0].tokens_per_s, pair[1].tokens_per_s).value
        for cell in records
        if (pair := _pair(records, cell, WITH_PLUGIN.name, BASELINE.name)) is not None
    }


def _all_served(records: Records) -> Outcome:
    failed = [record for modes in records.values() for record in modes.values() if record.failed]
    found = "; ".join(f"{record.cell}, {record.mode}: {record.reason}" for record in failed)
    return Outcome("every batch is served to its end", found or "yes", not failed)


def _no_masks_shipped(records: Records) -> Outcome:
    shipped = sum(record.mask_bytes for record in _of_ours(records))
    return Outcome("mask bytes through the engine core or a socket: 0", str(shipped), shipped == 0)


def _masks_right(records: Records) -> Outcome:
    """Judge all modes: a wrong mask makes any figure worthless."""
    found = [record for modes in records.values() for record in modes.values()]
    compared = sum(record.compared for record in found)
    wrong = [r for r in found if r.faults or r.forbidden or (r.is_checked and not r.compared)]
    lost = sum(record.lost_drafts for record in _of_ours(records))
    text = f"{compared} rows compared, wrong in {len(wrong)} records, {lost} right drafts refused"
    if wrong:
        first = wrong[0]
        text += f"; {first.cell}, {first.mode}: {first.faults[:1] or first.forbidden}"
    return Outcome(
        "masks equal a fresh matcher's, and no right draft is refused", text, not wrong and not lost
    )


def _of_ours(records: Records) -> Iterable[Record]:
    return (r for modes in records.values() for name, r in modes.items() if name.startswith(OURS.name))


def ratio_to_better(modes: Mapping[str, Record]) -> statistics.Bounded | None:
    """Return ours over the fastest way of upstream in one cell; None where either is missing."""
    ours = modes.get(OURS.name)
    theirs = [modes[name] for name in _UPSTREAM if name in modes and modes[name].tokens_per_s]
    if ours is None or not ours.tokens_per_s or not theirs:
        return None
    better = max(theirs, key=lambda record: statistics.mean(record.tokens_per_s).value)
    return statistics.paired_ratio(ours.tokens_per_s, better.tokens_per_s)


def _pair(records: Records, cell: str, one: str, other: str) -> tuple[Record, Record] | None:
    modes = records.get(cell, {})
    if one not in modes or other not in modes:
        return None
    if not modes[one].tokens_per_s or not modes[other].tokens_per_s:
        return None
    return modes[one], modes[other]


def _shown(bounded: statistics.Bounded) -> str:
    return f"{bounded.value:.3f} ({bounded.low:.3f} to {bounded.high:.3f})"
