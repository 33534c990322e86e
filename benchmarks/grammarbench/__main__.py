"""`make bench-grammar`; see benchmarks/README.md for its variables."""

import asyncio
import os
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Final

import commit
import vocabulary
from devtools import cache, tinymodel

from grammarbench import bars, burst, corpus, pods, unique
from grammarbench.corpus import Entry
from grammarbench.pods import MODES, Mode
from grammarbench.records import Record, Records, Sample
from grammarbench.upstream import Upstream
from guided_contract.config import PodConfig

_LIMIT_S: Final = 60.0  # past it upstream is killed, and its cache, which later schemas gain by, with it


def main() -> int:
    """Measure what is missing, print all, and return 1 where a bar is missed."""
    os.environ.setdefault("RUST_LIB_BACKTRACE", "0")  # as our launcher has it; for upstream, too
    suite = Path(os.environ["SUITE"]) if os.environ.get("SUITE") else None
    out = Path(os.environ.get("OUT") or cache.root() / "bench-grammar" / commit.name())
    out.mkdir(parents=True, exist_ok=True)
    records = Records(out / "records.json")
    documents = os.environ.get("DOCUMENTS")
    entries = corpus.outside(Path(documents)) if documents else corpus.corpus(suite)
    entries = entries[:: int(os.environ.get("EVERY") or 1)]
    model = vocabulary.folder()
    wanted = (os.environ.get("MODES") or ";".join([*(mode.name for mode in MODES), "upstream"])).split(";")
    for name in wanted:
        if name != "none" and name not in records.modes:
            records.add(
                _upstream(model, entries) if name == "upstream" else _ours(_mode(name), model, entries)
            )
    count = int(os.environ.get("UNIQUE") or 100_000)
    if count > 0 and records.usage is None:
        with tempfile.TemporaryDirectory(prefix="gb") as folder:
            records.usage = asyncio.run(unique.measure(Path(folder), tinymodel.models() / "tiny", count))
            records.save()
    if records.burst is None:
        with tempfile.TemporaryDirectory(prefix="gb") as folder:
            records.burst = asyncio.run(burst.measure(Path(folder), model))
            records.save()
    lines = bars.report(records, entries, _conditions(entries, suite))
    (out / "report.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))
    print(f"\nwritten to {out}")
    return 1 if any(bar.met is False for bar in bars.bars(records)) else 0


def _mode(name: str) -> Mode:
    found = next((mode for mode in MODES if mode.name == name), None)
    if found is None:
        raise SystemExit(f"no such mode: {name}; modes: {'; '.join(mode.name for mode in MODES)}; upstream")
    return found


def _ours(mode: Mode, model: Path, entries: list[Entry]) -> Record:
    """Measure one mode: cold and from memory."""
    record = Record(mode.name)
    with tempfile.TemporaryDirectory(prefix="gb") as folder:
        config = pods.pod(Path(folder), model, mode)
        with pods.started(config):
            asyncio.run(_measure(config, entries, record))
            record.proofs = pods.proofs(config)
    return record


async def _measure(config: PodConfig, entries: list[Entry], record: Record) -> None:
    async with pods.connected(config) as api:
        for entry in entries:
            for stage in bars.STAGES:
                answer = await pods.prepare(api, entry.text, entry.kind)
                record.samples.append(Sample(stage, entry.source, *answer))


def _upstream(model: Path, entries: list[Entry]) -> Record:
    record = Record("upstream")
    limit_s = float(os.environ.get("LIMIT") or _LIMIT_S)
    upstream = Upstream.start(model, limit_s)
    try:
        for entry in entries:
            took_s, outcome = upstream.compile(entry.kind, entry.text)
            is_compiled = not outcome.startswith("refused")
            record.samples.append(Sample("cold", entry.source, took_s, outcome, is_compiled))
    finally:
        upstream.stop()
    return record


def _conditions(entries: list[Entry], suite: Path | None) -> list[str]:
    counts = Counter(entry.source for entry in entries)
    known = corpus.digest(corpus.corpus(None)) == corpus.DIGEST
    return [
        f"commit {commit.name()}, {os.cpu_count()} cores; vocabulary {vocabulary.SIZE}",
        f"{len(entries)} schemas: {', '.join(f'{count} {source}' for source, count in counts.items())}"
        + ("" if known else "; NOT the corpus that was committed"),
        *([] if suite else ["JSON-Schema-Test-Suite is left out: SUITE= names its folder of tests"]),
    ]


if __name__ == "__main__":
    sys.exit(main())
