"""What is measured: modes of guided decoding, and cells, in which all modes are compared."""

import re
from dataclasses import dataclass
from typing import Final, Self

from rankbench.documents import SETS
from rankbench.drafts import METHODS
from rankbench.protocol import Backend

# Steps that are measured, by drafts: about 120 tokens of each document.
STEPS: Final = {0: 120, 1: 70, 3: 48, 7: 36}
_NAME: Final = re.compile(r"(?:tp(\d+)-)?(?:([a-z]+\d?)-)?k(\d+)-b(\d+)-([a-z]+)(?:-(\d+)%)?")


@dataclass(frozen=True, slots=True)
class Mode:
    """A way to serve a batch: which engine does it, and the backend that it is asked to use."""

    name: str
    ours: bool
    backend: Backend
    is_async: bool = True
    has_dry: bool = False  # each request has DRY, as it is by default, beside its grammar

    @property
    def engine(self) -> str:
        """Return the engine's name; modes of one engine take turns on it."""
        kind = "async" if self.is_async else "sync"
        if self.ours:
            return f"ours-{kind}" + ("-dry" if self.has_dry else "")
        return f"upstream-{'guidance' if self.backend == 'guidance' else 'xgrammar'}-{kind}"

    def excluded(self, cell: "Cell") -> str:
        """Return why this mode is not measured in a cell; empty where it is."""
        if cell.schemas == "bounded" and self.backend == "xgrammar":
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
# A logits processor for each request, whose edits the rank packs and stages while the GPU is busy.
OURS_DRY: Final = Mode("ours, DRY", ours=True, backend="auto", has_dry=True)


@dataclass(frozen=True, slots=True, order=True)
class Cell:
    """A load: so many ranks, drafts of each sequence by a method of rankbench.drafts, sequences, and schemas.

    `share` is the part of the sequences that are guided.
    """

    ranks: int
    drafts: int
    batch: int
    schemas: str
    share: float = 1.0
    method: str = "draft"

    @property
    def name(self) -> str:
        """Return its short name, as CELLS= takes it."""
        ranks = "" if self.ranks == 1 else f"tp{self.ranks}-"
        method = "" if self.method == "draft" else f"{self.method}-"
        share = "" if self.share == 1 else f"-{self.share:.0%}"
        return f"{ranks}{method}k{self.drafts}-b{self.batch}-{self.schemas}{share}"

    @classmethod
    def named(cls, name: str) -> Self:
        """Return the cell of this name.

        Raises
        ------
        SystemExit
            There is none.
        """
        found = _NAME.fullmatch(name)
        if found is None or found[5] not in SETS or (found[2] or "draft") not in METHODS:
            raise SystemExit(
                f"no cell: {name}; as tp4-ngram-k3-b64-plain-20%, with {list(METHODS)} and {list(SETS)}"
            )
        ranks, method, drafts, batch, schemas, share = found.groups()
        return cls(
            int(ranks or 1), int(drafts), int(batch), schemas, int(share or 100) / 100, method or "draft"
        )

    @property
    def steps(self) -> int:
        """Return how many steps are measured."""
        return STEPS[self.drafts]

    @property
    def engine(self) -> tuple[int, int]:
        """Return what its engines are made for: cells that agree in it share them."""
        return self.ranks, self.drafts
