"""`make bench-ranks`; see benchmarks/README.md for its variables."""

import os
import signal
import sys
import time
from pathlib import Path
from typing import Final

import commit
import msgspec
import vocabulary
from devtools import cache

from rankbench import corpora, measure, picture, plugin, speculation, suite, table
from rankbench.bars import outcomes
from rankbench.cells import BASELINE, MODES, OURS_APART, SETS, Cell, Mode, default_cells, grid
from rankbench.clock import Costs
from rankbench.masks import References
from rankbench.records import Journal, Record

_REPETITIONS: Final = 5


def main() -> int:
    """Measure, print, and return 1 where a bar is missed."""
    wanted = _cells(os.environ.get("ROWS", ""))
    modes = _modes(os.environ.get("MODES", ""))
    repetitions = int(os.environ.get("REPS", _REPETITIONS))
    measured = commit.name()
    if measured.endswith("-changed"):
        measured += f"-{int(time.time())}"
    out = Path(os.environ.get("OUT") or cache.root() / "bench-ranks" / measured)
    logs = out / "logs"
    profiles = out / "profiles" if os.environ.get("PROFILE") == "1" else None
    suite_tests = Path(os.environ["SUITE"]) if os.environ.get("SUITE") else None
    for folder in (logs, profiles):
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
    journal = Journal(out / "records.jsonl")
    model = vocabulary.folder()
    folders = measure.Folders(model, logs, profiles, suite_tests)
    references = References(corpora.load_tokenizer(model), vocabulary.SIZE)
    known = {(record.cell, record.mode) for record in journal}
    missing = [cell for cell in wanted if any((cell.name, mode.name) not in known for mode in modes)]
    # The engines are of other process groups: an ordinary end lets us end them, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    end_s = time.monotonic() + 60 * float(os.environ.get("MINUTES", "inf"))
    longest_s = 0.0
    for cells in measure.by_engines(missing).values():
        if time.monotonic() + longest_s > end_s:
            break
        session = measure.Session(cells, modes, folders)
        try:
            for cell in cells:
                started = time.monotonic()
                if started + longest_s > end_s:
                    break
                for record in session.measure(cell, repetitions, references):
                    journal.append(record)
                longest_s = max(longest_s, time.monotonic() - started)
        finally:
            session.close()
    records = _latest(journal, wanted, modes)
    judged = outcomes(records, _before(wanted, modes))
    text = "\n".join(
        [*_conditions(measured, suite_tests), "", *table.lines(records), *table.bar_lines(judged)]
    )
    (out / "report.md").write_text(text + "\n")
    (out / "gpu-busy.svg").write_text(picture.svg(records))
    print(text)
    print(f"\nwritten to {out}")
    if left := [name for name, found in records.items() if not found]:
        print(f"not measured yet: {', '.join(left)}; the same command with OUT={out} goes on")
    return 1 if any(outcome.met is False for outcome in judged) else 0


def _latest(journal: Journal, wanted: list[Cell], modes: list[Mode]) -> dict[str, dict[str, Record]]:
    """Return the last record of each cell and mode: a cell that was interrupted was measured again."""
    found: dict[str, dict[str, Record]] = {}
    for cell in wanted:
        latest = {record.mode: record for record in journal if record.cell == cell.name}
        found[cell.name] = {mode.name: latest[mode.name] for mode in modes if mode.name in latest}
    return found


def _before(wanted: list[Cell], modes: list[Mode]) -> dict[str, dict[str, Record]]:
    """Return what an earlier run found, for the bars that ask for two."""
    before = os.environ.get("BEFORE")
    return _latest(Journal(Path(before) / "records.jsonl"), wanted, modes) if before else {}


def _conditions(measured: str, suite_tests: Path | None) -> list[str]:
    costs = ", ".join(f"{name} {value:g}" for name, value in msgspec.to_builtins(Costs()).items())
    libraries = ", ".join(f"{name} {version}" for name, version in plugin.versions().items())
    return [
        f"commit {measured}, {os.cpu_count()} cores, {libraries}; vocabulary {vocabulary.SIZE}",
        f"clock, seconds: {costs}",
        f"drafts: right with probability {speculation.ACCEPTANCE} where those before were; same seed for all",
        suite.LEFT_OUT if suite_tests is None else "the public schemas hold JSON-Schema-Test-Suite's",
        *(f"changed in all engines alike: {change}" for change in plugin.CHANGES),
    ]


def _cells(names: str) -> list[Cell]:
    everything = list(grid()) if os.environ.get("FULL") == "1" else default_cells()
    if not names:
        return everything
    by_name = {cell.name: cell for cell in (*everything, *grid())}
    unknown = [name for name in names.split(",") if name not in by_name]
    if unknown:
        raise SystemExit(f"no such row: {', '.join(unknown)}; a row is as k3-b64-plain, sets are {SETS}")
    return [by_name[name] for name in names.split(",")]


def _modes(names: str) -> list[Mode]:
    if not names:
        return list(MODES)
    by_name = {mode.name: mode for mode in (*MODES, OURS_APART)}
    unknown = [name for name in names.split(";") if name not in by_name]
    if unknown:
        raise SystemExit(f"no such mode: {'; '.join(unknown)}; modes: {'; '.join(by_name)}")
    chosen = [by_name[name] for name in names.split(";")]
    return chosen if BASELINE in chosen else [BASELINE, *chosen]


if __name__ == "__main__":
    sys.exit(main())
