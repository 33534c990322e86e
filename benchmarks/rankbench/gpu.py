"""`make bench-gpu`: random weights on a real GPU, ours against upstream (WEIGHTS=, MODES=, REPS=, CELLS=).

Model Runner V2, CUDA graphs, async scheduling; drafts by ngram_gpu. What random weights generate is nonsense
that the grammar keeps to its records, of which there are more than a run generates: every sequence of a mode
generates the same number of tokens.
"""

import os
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import commit
import vocabulary
from devtools import cache

from rankbench import statistics
from rankbench.cells import BASELINE, OURS, UPSTREAM, WITH_PLUGIN, Mode
from rankbench.measure import Record
from rankbench.on_gpu import Records
from rankbench.programs import Program
from rankbench.protocol import EngineSpec, Failed, Run

_TOKENS: Final = 128
_REPETITIONS: Final = 5
_MODES: Final = (BASELINE, WITH_PLUGIN, *UPSTREAM, OURS)
_CELLS: Final = [(drafts, batch) for drafts in (0, 3) for batch in (1, 64, 256)]
# As wide and deep as models that are served with so many billions of weights.
_SHAPES: Final = {
    "1B": {
        "hidden_size": 2048,
        "intermediate_size": 5632,
        "num_hidden_layers": 16,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 64,
    },
    "8B": {
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
    },
}


def main() -> int:
    """Measure, and print a table."""
    logs = cache.root() / "bench-ranks" / "gpu-logs"
    logs.mkdir(parents=True, exist_ok=True)
    wanted = (os.environ.get("MODES") or ";".join(mode.name for mode in _MODES)).split(";")
    modes = [mode for mode in _MODES if mode is BASELINE or mode.name in wanted]
    named = os.environ.get("CELLS", "")
    cells = [cell for cell in _CELLS if not named or _name(*cell) in named.split(",")]
    folder = Path(tempfile.mkdtemp(prefix="rbg-", dir="/tmp"))
    weights = os.environ.get("WEIGHTS") or "1B"
    print(f"commit {commit.name()}, {_device()}, {weights} random weights, {vocabulary.SIZE} tokens,")
    print(f"{_TOKENS} tokens of each sequence, each with a schema of its own\n")
    print("| cell | mode | tok/s | of unguided (95 %) | CPU s per 1,000 tok |")
    print("| --- | --- | --- | --- | --- |")
    try:
        model = _model(folder, _SHAPES[weights])
        for drafts in dict.fromkeys(drafts for drafts, _ in cells):
            programs = {mode.engine: Program(_spec(mode, drafts, model), logs) for mode in modes}
            try:
                for program in programs.values():
                    program.wait_ready()
                for batch in (batch for other, batch in cells if other == drafts):
                    _print(_measured(modes, programs, _name(drafts, batch), batch))
            finally:
                for program in programs.values():
                    program.end()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return 0


def _name(drafts: int, batch: int) -> str:
    return f"k{drafts}-b{batch}"


def _device() -> str:
    import torch  # noqa: PLC0415 - heavy

    return str(torch.cuda.get_device_name())


def _model(folder: Path, shape: Mapping[str, int]) -> Path:
    """Write the configuration of a model as large as small ones that are served, without weights."""
    return vocabulary.write_model(folder, **shape)


def _spec(mode: Mode, drafts: int, model: Path) -> EngineSpec:
    return EngineSpec(
        name=f"gpu-{mode.engine}",
        ours=mode.ours,
        device="gpu",
        backend="guidance" if mode.backend == "guidance" else "xgrammar",
        drafts=drafts,
        model=str(model),
        sets=[Records.name],
    )


def _measured(modes: Sequence[Mode], programs: dict[str, Program], cell: str, batch: int) -> list[Record]:
    """Have every mode serve its run once in each repetition; the first compiles, and does not count."""
    found = {mode: Record(cell, mode.name) for mode in modes}
    for repetition in range(int(os.environ.get("REPS", _REPETITIONS)) + 1):
        for mode, record in found.items():
            run = Run(schemas=Records.name, batch=batch, share=1.0, backend=mode.backend, steps=_TOKENS)
            served = programs[mode.engine].serve(run)
            if isinstance(served, Failed):
                raise SystemExit(f"{mode.name}: {served.reason}")
            if served.tokens != batch * _TOKENS:
                raise SystemExit(f"{mode.name}: {served.tokens} tokens, not {batch * _TOKENS}")
            if repetition:
                record.served.append(served)
    return list(found.values())


def _print(records: Sequence[Record]) -> None:
    baseline = records[0].tokens_per_s
    for record in records:
        ratio = statistics.paired_ratio(record.tokens_per_s, baseline)
        speed, cpu = (statistics.mean(each).value for each in (record.tokens_per_s, record.cpu_s_per_1000))
        print(
            f"| {record.cell} | {record.mode} | {speed:.0f} "
            f"| {ratio.value:.3f} ({ratio.low:.3f} to {ratio.high:.3f}) | {cpu:.3f} |",
            flush=True,
        )


if __name__ == "__main__":
    sys.exit(main())
