"""A benchmark's run: its cells measured, each record kept, and gone on with where it stopped."""

import os
import signal
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeVar

import commit
import msgspec
import vocabulary
from devtools import cache

from rankbench import corpora, measure, plugin, suite
from rankbench.cells import Cell, Mode
from rankbench.clock import Costs
from rankbench.masks import References
from rankbench.records import Journal, Record

_REPETITIONS: Final = 5
_Named = TypeVar("_Named", Cell, Mode)


class Place:
    """Where a run's records, report and logs are: OUT, or the cache, by commit.

    Parameters
    ----------
    name
        The benchmark's folder in the cache.
    """

    def __init__(self, name: str) -> None:
        self.commit = commit.name()
        if self.commit.endswith("-changed"):
            self.commit += f"-{int(time.time())}"
        self.out = Path(os.environ.get("OUT") or cache.root() / name / self.commit)
        self.journal = Journal(self.out / "records.jsonl")
        self.suite_tests = Path(os.environ["SUITE"]) if os.environ.get("SUITE") else None

    def folders(self) -> measure.Folders:
        """Return the folders, made."""
        logs = self.out / "logs"
        profiles = self.out / "profiles" if os.environ.get("PROFILE") == "1" else None
        for folder in (logs, profiles):
            if folder is not None:
                folder.mkdir(parents=True, exist_ok=True)
        return measure.Folders(vocabulary.folder(), logs, profiles, self.suite_tests)

    def conditions(self, costs: Costs) -> list[str]:
        """Return the lines that each report begins with."""
        told = ", ".join(f"{name} {value:g}" for name, value in msgspec.to_builtins(costs).items())
        libraries = ", ".join(f"{name} {version}" for name, version in plugin.versions().items())
        return [
            f"commit {self.commit}, {os.cpu_count()} cores, {libraries}; vocabulary {vocabulary.SIZE}",
            f"clock, seconds: {told}",
            suite.LEFT_OUT
            if self.suite_tests is None
            else "the public schemas hold JSON-Schema-Test-Suite's",
            *(f"changed in all engines alike: {change}" for change in plugin.CHANGES),
        ]

    def write(self, text: str, pictures: Mapping[str, str], records: Mapping[str, object]) -> None:
        """Write the report and its pictures, print the report and say what is missing."""
        (self.out / "report.md").write_text(text + "\n")
        for name, picture in pictures.items():
            (self.out / name).write_text(picture)
        print(text)
        print(f"\nwritten to {self.out}")
        if left := [name for name, found in records.items() if not found]:
            print(f"not measured yet: {', '.join(left)}; the same command with OUT={self.out} goes on")


def measured(
    place: Place, cells: Sequence[Cell], modes: Sequence[Mode], costs: Costs
) -> dict[str, dict[str, Record]]:
    """Measure what the journal lacks of these cells (REPS=, MINUTES=) and return all, by cell and mode."""
    folders = place.folders()
    known = {(record.cell, record.mode) for record in place.journal}
    missing = [cell for cell in cells if any((cell.name, mode.name) not in known for mode in modes)]
    references = References(corpora.load_tokenizer(folders.model), vocabulary.SIZE)
    repetitions = int(os.environ.get("REPS", _REPETITIONS))
    # The engines are of other process groups: an ordinary end lets us end them, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    end_s = time.monotonic() + 60 * float(os.environ.get("MINUTES", "inf"))
    longest_s = 0.0
    for group in measure.by_engines(missing):
        if time.monotonic() + longest_s > end_s:
            break
        session = measure.Session(group, modes, folders, costs)
        try:
            for cell in group:
                started = time.monotonic()
                if started + longest_s > end_s:
                    break
                for record in session.measure(cell, repetitions, references):
                    place.journal.append(record)
                longest_s = max(longest_s, time.monotonic() - started)
        finally:
            session.close()
    return latest(place.journal, cells, modes)


def latest(
    journal: Iterable[Record], cells: Sequence[Cell], modes: Sequence[Mode]
) -> dict[str, dict[str, Record]]:
    """Return the last record of each cell and mode: a cell that was interrupted was measured again."""
    found: dict[str, dict[str, Record]] = {}
    for cell in cells:
        records = {record.mode: record for record in journal if record.cell == cell.name}
        found[cell.name] = {mode.name: records[mode.name] for mode in modes if mode.name in records}
    return found


def chosen(names: str, separator: str, known: Iterable[_Named], asked: str) -> list[_Named]:
    """Return those of `known` that are named, in the names' order.

    Raises
    ------
    SystemExit
        One is not known; the message ends with `asked`.
    """
    by_name = {one.name: one for one in known}
    wanted = names.split(separator)
    if unknown := [name for name in wanted if name not in by_name]:
        raise SystemExit(f"not known: {f'{separator} '.join(unknown)}; {asked}")
    return [by_name[name] for name in wanted]
