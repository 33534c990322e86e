"""What is measured: modes of guided decoding, the cells of the grid, and the bars that rows must meet."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

from rankbench.protocol import Backend

# Steps that are measured, by drafts: about 120 tokens of each document.
STEPS: Final = {0: 120, 1: 70, 3: 48, 7: 36}
DRAFTS: Final = (0, 3, 7)
BATCHES: Final = (1, 16, 64, 128, 256)
SHARES: Final = (0.0, 0.2, 0.8, 1.0)
RANKS: Final = (1, 2, 4)
SETS: Final = ("plain", "nested", "bounded", "public")
_REAL_TOKENS: Final = 96
_BY_LOAD_STEPS: Final = 64  # whatever is chosen: more, and the documents are too short for three drafts
# The engine by load, a schedule by hand, or always as many.
Drafting = Literal["auto", "hand"] | int | None
FIXED: Final = (0, 1, 3)  # numbers of draft tokens that `numTokens: Auto` is to choose among
CHANGING: Final = (128, 4, 128, 8)  # sequences, phase after phase
CHANGING_TOKENS: Final = 200  # of each of them


@dataclass(frozen=True, slots=True)
class Mode:
    """A way to serve a batch: which engine does it, and the backend that it is asked to use."""

    name: str
    ours: bool
    backend: Backend
    is_async: bool = True
    executor: Literal["uni", "mp"] = "uni"
    has_dry: bool = False  # each request has DRY, as it is by default, beside its grammar
    drafting: Drafting = None  # who chooses the number of draft tokens; None: the cell

    @property
    def engine(self) -> str:
        """Return the engine's name; modes of one engine take turns on it."""
        if self.ours:
            kind = ("" if self.executor == "uni" else "-mp") + ("-dry" if self.has_dry else "")
            kind += "" if self.drafting is None else f"-k{self.drafting}"
            return f"ours{kind}" + ("" if self.is_async else "-sync")
        backend = "guidance" if self.backend == "guidance" else "xgrammar"
        return f"upstream-{backend}-{'async' if self.is_async else 'sync'}"

    def excluded(self, cell: "Cell") -> str:
        """Return why this mode is not measured in a cell; empty where it is."""
        if self.backend == "none":
            return ""
        if not cell.share:
            return "no request is guided"
        if cell.schemas == "bounded" and self.backend == "xgrammar" and not self.ours:
            return "xgrammar takes 8 s to compile one maxLength 200, and minutes for 2000"
        if cell.ranks > 1 and not self.is_async:
            return "sync scheduling is measured on one rank"
        return ""


BASELINE: Final = Mode("unguided", ours=False, backend="none")
BASELINE_SYNC: Final = Mode("unguided, sync", ours=False, backend="none", is_async=False)
WITH_PLUGIN: Final = Mode("unguided, plugin", ours=True, backend="none")
UPSTREAM: Final = (
    Mode("upstream xgrammar", ours=False, backend="xgrammar"),
    Mode("upstream llguidance", ours=False, backend="guidance"),
)
UPSTREAM_SYNC: Final = (
    Mode("upstream xgrammar, sync", ours=False, backend="xgrammar", is_async=False),
    Mode("upstream llguidance, sync", ours=False, backend="guidance", is_async=False),
)
OURS: Final = Mode("ours", ours=True, backend="auto")
OURS_SYNC: Final = Mode("ours, sync", ours=True, backend="auto", is_async=False)
OURS_EACH: Final = (
    Mode("ours xgrammar", ours=True, backend="xgrammar"),
    Mode("ours llguidance", ours=True, backend="guidance"),
)
# Not measured unless asked for: a rank of its own process, so that the engine core schedules while it fills.
OURS_APART: Final = Mode("ours, own process", ours=True, backend="auto", executor="mp")
# Likewise: a logits processor for each request, whose edits the rank packs and stages while the GPU is busy.
OURS_DRY: Final = Mode("ours, DRY", ours=True, backend="auto", has_dry=True)
# Measured beside each other, and in cells by load alone.
AUTO: Final = Mode("ours, numTokens Auto", ours=True, backend="auto", drafting="auto")
BY_HAND: Final = Mode("ours, schedule by hand", ours=True, backend="auto", drafting="hand")
ALWAYS: Final = tuple(
    Mode(f"ours, always {drafts}", ours=True, backend="auto", drafting=drafts) for drafts in FIXED
)
MODES: Final = (BASELINE, WITH_PLUGIN, *UPSTREAM, *UPSTREAM_SYNC, OURS, *OURS_EACH)


@dataclass(frozen=True, slots=True, order=True)
class Cell:
    """One row of the table for each mode.

    `method` is one of rankbench.methods, `dropped` how many of the draft tokens the scheduler does not ask
    for (as above `disableAbove`), `is_by_load` that each mode says who chooses, `is_changing` that it does so
    at one number of sequences after the other; `is_real` that the tiny model answers tasks on the CPU.
    """

    ranks: int
    drafts: int
    batch: int
    schemas: str
    share: float
    method: str = "draft"
    dropped: int = 0
    is_by_load: bool = False
    is_changing: bool = False
    is_real: bool = False

    @property
    def name(self) -> str:
        """Return its short name, as ROWS= and CELLS= take it."""
        place = ("" if self.ranks == 1 else f"tp{self.ranks}-") + ("cpu-" if self.is_real else "")
        method = "" if self.method == "draft" else f"{self.method}-"
        to = f"to{self.scheduled}" if self.dropped else ""
        number = "auto" if self.is_by_load else f"{self.drafts}{to}"
        share = "" if self.share == 1 else f"-{self.share:.0%}"
        batch = "changing" if self.is_changing else f"b{self.batch}"
        return f"{place}{method}k{number}-{batch}-{self.schemas}{share}"

    @property
    def scheduled(self) -> int:
        """Return how many draft tokens of a sequence the scheduler asks for."""
        return self.drafts - self.dropped

    @property
    def steps(self) -> int:
        """Return how many steps are measured; of a real model, how many tokens it may generate."""
        if self.is_by_load:
            return _BY_LOAD_STEPS
        return _REAL_TOKENS if self.is_real else STEPS[self.scheduled]

    @property
    def phases(self) -> tuple[int, ...]:
        """Return how many sequences there are, one phase after the other."""
        return CHANGING if self.is_changing else (self.batch,)

    @property
    def engine(self) -> tuple[object, ...]:
        """Return what its engines are made for: cells that agree in it share them."""
        # What a choice learnt of one method is wrong of another.
        learnt = self.method if self.is_by_load else ""
        return self.is_real, self.ranks, self.drafts, self.dropped, self.is_by_load, learnt


def default_cells() -> list[Cell]:
    """Return the cells that the bars name."""
    return sorted(
        {
            Cell(1, 3, 64, "plain", 1.0),
            Cell(1, 3, 256, "plain", 1.0),
            Cell(1, 3, 64, "nested", 1.0),
            Cell(1, 3, 64, "bounded", 1.0),
            Cell(1, 3, 64, "public", 1.0),
            Cell(1, 3, 128, "plain", 1.0),
            Cell(1, 3, 64, "plain", 0.2),
            Cell(1, 0, 64, "plain", 1.0),
            Cell(1, 0, 128, "plain", 1.0),
            Cell(1, 0, 256, "plain", 1.0),
            Cell(4, 3, 64, "plain", 1.0),
        }
    )


def grid() -> Iterator[Cell]:
    """Yield every cell of the full run."""
    for ranks, drafts, schemas, batch, share in itertools.product(RANKS, DRAFTS, SETS, BATCHES, SHARES):
        # Without a guided request the schemas do not matter; one sequence is guided or is not.
        if (share or schemas == SETS[0]) and (batch > 1 or share in {0.0, 1.0}):
            yield Cell(ranks, drafts, batch, schemas, share)
