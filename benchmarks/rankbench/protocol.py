"""What the benchmark's driver and its engine programs say to each other: a line of JSON each way."""

from typing import Literal

import msgspec

from rankbench.clock import Costs
from rankbench.window import Report

Backend = Literal["none", "xgrammar", "guidance", "auto"]


class EngineSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One engine program. `ours`: with plugin and GuidedWorker; else upstream, on one backend for good."""

    name: str
    ours: bool
    device: Literal["virtual", "gpu"] = "virtual"
    is_async: bool = True
    backend: Backend = "xgrammar"
    drafts: int = 3
    tensor_parallel: int = 1
    has_dry: bool = False  # all requests of ours have DRY
    max_batch: int = 256
    model: str
    folder: str = ""  # of its own, short: it holds sockets
    sets: list[str]
    costs: Costs = Costs()


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """Serve one batch. `share` is the part of its requests that are guided, from 0 to 1.

    `steps` are measured on a virtual GPU; a real model generates so many tokens.
    """

    schemas: str
    batch: int
    share: float
    backend: Backend
    steps: int
    method: str = "draft"  # of rankbench.drafts, on a virtual GPU
    profile: str = ""  # where a rank writes its profile


class Served(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """What became of a batch. `cpu_s` is of the engine's processes.

    `wall_s` is from the first step to the last answer; what a virtual GPU's first rank saw of its full batch
    is in `window`. `lost_drafts`, `forbidden`: of all ranks.
    """

    tokens: int
    cpu_s: float
    wall_s: float
    window: Report | None = None
    lost_drafts: int = 0
    forbidden: int = 0

    @property
    def tokens_per_s(self) -> float:
        """Return the tokens a second: of the full batch where that was looked at, else of all of it."""
        seen = self.window or self
        return seen.tokens / seen.wall_s


class Failed(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The batch was not served as it should be."""

    reason: str
