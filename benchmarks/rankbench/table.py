"""The table of a run, as Markdown."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from rankbench import statistics
from rankbench.bars import Outcome, Records
from rankbench.cells import BASELINE
from rankbench.records import Record

Column = Callable[[Record, Record | None], str]  # of a record and of the cell's unguided one


def _mean(values: str, digits: int) -> Column:
    def column(record: Record, _baseline: Record | None) -> str:
        found: list[float] = getattr(record, values)
        return f"{statistics.mean(found).value:.{digits}f}" if found else "-"

    return column


def _ratio(record: Record, baseline: Record | None) -> str:
    if baseline is None or len(baseline.tokens_per_s) != len(record.tokens_per_s):
        return ""
    bounded = statistics.paired_ratio(record.tokens_per_s, baseline.tokens_per_s)
    return f"{bounded.value:.3f} ({bounded.low:.3f} to {bounded.high:.3f})"


RANKS: Final[Mapping[str, Column]] = {
    "tok/s": _mean("tokens_per_s", 0),
    "of unguided (95 %)": _ratio,
    "GPU-busy": _mean("gpu_busy", 3),
    "exposed us/step": _mean("exposed_us", 0),
    "masks late us/step": _mean("late_mask_us", 0),
    "mask MB shipped": lambda record, _: f"{record.mask_bytes / 1e6:.1f}",
    "CPU s per 1,000 tok": _mean("cpu_s_per_1000", 3),
}
SPECULATION: Final[Mapping[str, Column]] = {
    "tok/s": _mean("tokens_per_s", 0),
    "of unguided (95 %)": _ratio,
    "step ms": _mean("step_ms", 2),
    "token p50 ms": _mean("token_p50_ms", 2),
    "token p99 ms": _mean("token_p99_ms", 2),
    "drafts accepted": _mean("accepted", 2),
    "GPU-busy": _mean("gpu_busy", 3),
    "masks late us/step": _mean("late_mask_us", 0),
    "CPU s per 1,000 tok": _mean("cpu_s_per_1000", 3),
}


CHOOSING: Final[Mapping[str, Column]] = {
    "tok/s": _mean("tokens_per_s", 0),
    "step ms": _mean("step_ms", 2),
    "token p50 ms": _mean("token_p50_ms", 2),
    "drafts asked for, share of steps": lambda record, _: _shares(record.asked),
    "drafts accepted": _mean("accepted", 2),
    "GPU-busy": _mean("gpu_busy", 3),
    "untimed batches to settle": lambda record, _: str(record.untimed or "-"),
}


def lines(records: Records, columns: Mapping[str, Column]) -> Iterator[str]:
    """Yield a table per cell."""
    for cell, modes in records.items():
        if not modes:
            continue
        yield f"**{cell}**"
        yield ""
        yield _row(["mode", *columns])
        yield _row(["---"] * (1 + len(columns)))
        baseline = modes.get(BASELINE.name)
        for record in modes.values():
            told = [column(record, baseline) for column in columns.values()]
            left_out = [record.reason, *[""] * (len(columns) - 1)]
            yield _row([record.mode, *(told if record.tokens_per_s else left_out)])
        yield ""


def bar_lines(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """Yield the bars."""
    yield _row(("bar", "found", "met"))
    yield _row(["---"] * 3)
    for outcome in outcomes:
        met = {True: "yes", False: "**no**", None: "-"}[outcome.met]
        yield _row((outcome.asks, outcome.found, met))


def _shares(asked: Mapping[int, int]) -> str:
    total = sum(asked.values())
    return ", ".join(f"{number}: {asked[number] / total:.2f}" for number in sorted(asked)) or "-"


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"
