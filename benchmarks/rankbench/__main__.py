"""`make bench-ranks`, `bench-host` and `bench-speculation`; see benchmarks/README.md for their variables.

All on the virtual GPU. The last with a forward pass that takes longer once the device is full of tokens:
over up to 300 tokens as long as over one, over more in proportion (a dense model of 16 bit on an H100: 990
TFLOP/s by 3.35 TB/s). Not modelled: attention over what is in the KV cache, experts (a mixture of them is
full of tokens much later), sampling that grows with the batch, the host's work to launch a draft model
without graphs, preemption.
"""

import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import commit
import msgspec
import vocabulary
from devtools import cache
from judged import Bar

from rankbench import measure, plugin, report
from rankbench.cells import (
    BASELINE,
    BASELINE_SYNC,
    OURS,
    OURS_DRY,
    OURS_SYNC,
    UPSTREAM,
    UPSTREAM_SYNC,
    WITH_PLUGIN,
    Cell,
    Mode,
)
from rankbench.clock import Costs
from rankbench.drafts import METHODS
from rankbench.measure import Record
from rankbench.report import BETTER, Least, MostThread, Records

_REPETITIONS: Final = 5
_LOADS: Final = (1, 8, 32, 64, 128, 256)


@dataclass(frozen=True)
class Benchmark:
    """What is measured unless CELLS and MODES say otherwise, and its bars; `asked` modes only when named."""

    costs: Costs
    modes: Sequence[Mode]
    cells: Sequence[str]
    bars: Sequence[Least | MostThread]
    judges: Sequence[Callable[[Records], Bar]] = ()
    asked: Sequence[Mode] = ()


BENCHMARKS: Final = {
    "ranks": Benchmark(
        costs=Costs(),
        modes=(BASELINE, WITH_PLUGIN, *UPSTREAM, *UPSTREAM_SYNC, OURS),
        asked=(OURS_DRY,),
        cells=(
            *("k0-b64-plain", "k0-b128-plain", "k0-b256-plain", "k3-b64-plain", "k3-b128-plain"),
            *("k3-b256-plain", "k3-b64-nested", "k3-b64-bounded", "k3-b64-plain-20%", "tp4-k3-b64-plain"),
        ),
        bars=(
            Least("k0-b64-plain", OURS, [BASELINE], 0.97),
            Least("k0-b128-plain", OURS, [BASELINE], 0.97),
            Least("k0-b256-plain", OURS, [BASELINE], 0.85, busy=0.95),
            Least("k3-b64-plain", OURS, [BASELINE], 0.97, busy=0.98),
            Least("k3-b128-plain", OURS, [BASELINE], 0.97),
            Least("k3-b256-plain", OURS, [BASELINE], 0.85, busy=0.85),
            Least("k3-b64-bounded", OURS, [BASELINE], 0.95, busy=0.95),
            Least("k3-b64-plain", OURS_DRY, [BASELINE], 0.95, busy=0.98),
            Least("k3-b256-plain", OURS, BETTER, 2.4),
            Least("", OURS, BETTER, 0.97),
            Least("", WITH_PLUGIN, [BASELINE], 0.97),
        ),
        judges=(report.cpu_of_ranks, report.right),
    ),
    "host": Benchmark(
        costs=Costs(forward_s=float(os.environ.get("FORWARD_MS", "12")) / 1e3),
        modes=(BASELINE, UPSTREAM[1], OURS),
        cells=tuple(f"k{drafts}-b{batch}-plain" for drafts in (0, 3) for batch in (1, 64, 256)),
        bars=(MostThread("k0-b64-plain", 150), MostThread("k3-b256-plain", 400)),
        judges=(report.right,),
    ),
    "speculation": Benchmark(
        costs=Costs(full_rows=300),
        modes=(BASELINE, BASELINE_SYNC, *UPSTREAM, *UPSTREAM_SYNC, OURS, OURS_SYNC),
        cells=(
            "k3-b64-bounded",
            *(f"k0-b{load}-plain" for load in _LOADS),
            *(Cell(1, 3, load, "plain", method=method).name for method in METHODS for load in _LOADS),
        ),
        bars=(
            Least("k3-b64-plain", OURS, [BASELINE], 0.97),
            Least("k3-b64-plain", OURS, UPSTREAM_SYNC, 1.5),
            Least("k3-b256-plain", OURS, UPSTREAM, 1.2),
            Least("k3-b64-bounded", OURS, UPSTREAM, 1.2),
            Least("", OURS, [OURS_SYNC], 0.98),
            Least("ngram-k3-b64-plain", OURS, [OURS_SYNC], 1.1),
        ),
        judges=(report.right,),
    ),
}


def main() -> int:
    """Measure, print, and return 1 where a bar is missed."""
    name = sys.argv[1]
    benchmark = BENCHMARKS[name]
    cells = [Cell.named(each) for each in (os.environ.get("CELLS") or ",".join(benchmark.cells)).split(",")]
    modes = _modes(benchmark)
    about = commit.name()
    out = Path(os.environ.get("OUT") or cache.root() / f"bench-{name}" / f"{about}-{int(time.time())}")
    records = _measured(out, cells, modes, benchmark.costs)
    bars = [bar.judge(records) for bar in benchmark.bars]
    bars += [judge(records) for judge in benchmark.judges]
    text = report.page(_conditions(about, benchmark.costs), records, bars)
    (out / "report.md").write_text(text + "\n")
    print(f"{text}\n\nwritten to {out}")
    return 1 if any(bar.met is False for bar in bars) else 0


def _modes(benchmark: Benchmark) -> list[Mode]:
    """Return the modes that MODES names, and the unguided ones, which all are compared with."""
    known = {mode.name: mode for mode in (*benchmark.modes, *benchmark.asked)}
    named = os.environ.get("MODES")
    wanted = named.split(";") if named else [mode.name for mode in benchmark.modes]
    if unknown := [name for name in wanted if name not in known]:
        raise SystemExit(f"no mode: {'; '.join(unknown)}; modes: {'; '.join(known)}")
    return [known[name] for name in dict.fromkeys([BASELINE.name, *wanted])]


def _measured(
    out: Path, cells: Sequence[Cell], modes: Sequence[Mode], costs: Costs
) -> dict[str, dict[str, Record]]:
    """Measure the cells that an earlier run with the same OUT has not, and return all."""
    journal = out / "records.jsonl"
    folders = measure.Folders(out / "logs", out / "profiles" if os.environ.get("PROFILE") == "1" else None)
    for folder in (folders.logs, folders.profiles):
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
    lines = journal.read_bytes().splitlines() if journal.exists() else []
    records = [msgspec.json.decode(line, type=Record) for line in lines]
    known = {(record.cell, record.mode) for record in records}
    missing = [cell for cell in cells if any((cell.name, mode.name) not in known for mode in modes)]
    # The engines are of other process groups: an ordinary end lets us end them, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    for group in measure.by_engines(missing):
        session = measure.Session(group, modes, folders, costs)
        try:
            for cell in group:
                found = session.measure(cell, int(os.environ.get("REPS", _REPETITIONS)))
                records += found
                with journal.open("ab") as file:
                    file.writelines(msgspec.json.encode(record) + b"\n" for record in found)
        finally:
            session.close()
    by_cell: dict[str, dict[str, Record]] = {cell.name: {} for cell in cells}
    for record in records:
        if record.cell in by_cell and any(mode.name == record.mode for mode in modes):
            by_cell[record.cell][record.mode] = record
    return by_cell


def _conditions(about: str, costs: Costs) -> list[str]:
    """Return the lines that each report begins with."""
    clock = ", ".join(f"{name} {value:g}" for name, value in msgspec.to_builtins(costs).items())
    libraries = ", ".join(f"{name} {version}" for name, version in plugin.versions().items())
    return [
        f"commit {about}, {os.cpu_count()} cores, {libraries}; vocabulary {vocabulary.SIZE}",
        f"clock, seconds: {clock}",
        *(f"drafting, {name}: {method}" for name, method in METHODS.items()),
        *(f"changed in all engines alike: {change}" for change in plugin.CHANGES),
    ]


if __name__ == "__main__":
    sys.exit(main())
