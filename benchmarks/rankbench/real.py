"""`make bench-cpu`: the tiny model on real vLLM and a real CPU, ours against upstream (MODES=ours, REPS=)."""

import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Final

from devtools import cache, tinymodel

from rankbench import corpora, turns
from rankbench.cells import BASELINE, OURS, OURS_EACH, UPSTREAM, WITH_PLUGIN, Mode
from rankbench.documents import Corpus
from rankbench.programs import Program
from rankbench.protocol import EngineSpec, Run, Served

_BATCH: Final = 16
_TOKENS: Final = 128
_MODES: Final = (BASELINE, WITH_PLUGIN, *UPSTREAM, OURS, *OURS_EACH)


def main() -> int:
    """Measure, and print a table."""
    folder = Path(tempfile.mkdtemp(prefix="rbc-", dir="/tmp"))
    logs = cache.root() / "bench-ranks" / "real-logs"
    logs.mkdir(parents=True, exist_ok=True)
    Corpus.load("plain", corpora.folder("plain")).save(folder)
    programs: dict[str, Program] = {}
    wanted = (os.environ.get("MODES") or ";".join(mode.name for mode in _MODES)).split(";")
    modes = [mode for mode in _MODES if mode is BASELINE or mode.name in wanted]
    try:
        for mode in modes:
            if mode.engine not in programs:
                programs[mode.engine] = Program(_spec(mode, folder), logs)
        for program in programs.values():
            program.wait_ready()
        _print(turns.measured(modes, programs, _run))
    finally:
        for program in programs.values():
            program.end()
        shutil.rmtree(folder, ignore_errors=True)
    return 0


def _spec(mode: Mode, folder: Path) -> EngineSpec:
    return EngineSpec(
        name=f"real-{mode.engine}",
        ours=mode.ours,
        device="cpu",
        backend="guidance" if mode.backend == "guidance" else "xgrammar",
        drafts=0,
        max_batch=_BATCH,
        model=str(tinymodel.models() / "tiny"),
        folder="",
        corpora=str(folder),
        sets=["plain"],
    )


def _run(mode: Mode) -> Run:
    return Run(schemas="plain", batch=_BATCH, share=1.0, backend=mode.backend, steps=_TOKENS)


def _print(found: dict[str, list[Served]]) -> None:
    print(f"real vLLM on {os.cpu_count()} cores, tiny model, {_BATCH} sequences of up to {_TOKENS} tokens,")
    print("one thread, async scheduling, the CPU's own model runner, a different schema for each sequence\n")
    print("| mode | tokens | tok/s | of unguided (95 %) | CPU s per 1,000 tok |")
    print("| --- | --- | --- | --- | --- |")
    print("\n".join(turns.rows(found)))


if __name__ == "__main__":
    sys.exit(main())
