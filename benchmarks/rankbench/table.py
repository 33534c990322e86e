"""The table of a run, as Markdown."""

from collections.abc import Iterator, Sequence
from typing import Final

from rankbench import statistics
from rankbench.bars import Outcome, Records
from rankbench.cells import BASELINE
from rankbench.records import Record

_HEAD: Final = (
    "mode",
    "tok/s",
    "of unguided (95 %)",
    "GPU-busy",
    "exposed us/step",
    "masks late us/step",
    "mask MB shipped",
    "masks reused",
    "CPU s per 1,000 tok",
)


def lines(records: Records) -> Iterator[str]:
    """Yield a table per cell."""
    for cell, modes in records.items():
        if not modes:
            continue
        yield f"**{cell}**"
        yield ""
        yield _row(_HEAD)
        yield _row(["---"] * len(_HEAD))
        baseline = modes.get(BASELINE.name)
        for record in modes.values():
            yield _row(_cells(record, baseline))
        yield ""


def bar_lines(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """Yield the bars."""
    yield _row(("bar", "found", "met"))
    yield _row(["---"] * 3)
    for outcome in outcomes:
        met = {True: "yes", False: "**no**", None: "-"}[outcome.met]
        yield _row((outcome.asks, outcome.found, met))


def _cells(record: Record, baseline: Record | None) -> list[str]:
    if not record.tokens_per_s:
        return [record.mode, record.reason, *[""] * (len(_HEAD) - 2)]
    ratio = ""
    if baseline is not None and len(baseline.tokens_per_s) == len(record.tokens_per_s):
        bounded = statistics.paired_ratio(record.tokens_per_s, baseline.tokens_per_s)
        ratio = f"{bounded.value:.3f} ({bounded.low:.3f} to {bounded.high:.3f})"
    middle = statistics.mean
    return [
        record.mode,
        f"{middle(record.tokens_per_s).value:.0f}",
        ratio,
        f"{middle(record.gpu_busy).value:.3f}",
        f"{middle(record.exposed_us).value:.0f}",
        f"{middle(record.late_mask_us).value:.0f}",
        f"{record.mask_bytes / 1e6:.1f}",
        "-" if record.reused is None else f"{record.reused:.2f}",
        f"{middle(record.cpu_s_per_1000).value:.3f}",
    ]


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"
