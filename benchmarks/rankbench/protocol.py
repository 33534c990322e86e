"""What the benchmark's driver and its engine programs say to each other: a line of JSON each way."""

from typing import Literal

import msgspec

from rankbench.clock import Costs
from rankbench.window import Report

Backend = Literal["none", "xgrammar", "guidance", "auto"]


class EngineSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One engine program. `ours`: with plugin and GuidedWorker; else upstream, on one backend for good.

    `device` other than "virtual": a real model there; on the CPU with vLLM's own choice of runner.
    """

    name: str
    ours: bool
    device: Literal["virtual", "cpu", "gpu"] = "virtual"
    is_async: bool = True
    backend: Backend = "xgrammar"
    drafts: int = 3
    scheduled: int = 3  # draft tokens that the scheduler asks for; fewer than `drafts` as by disableAbove
    schedule: list[tuple[int, int, int]] = []  # vLLM's, by batch size: first, last, draft tokens; else none
    is_by_load: bool = False  # the engine core chooses among the schedule's
    draft_model: str = ""  # of a real model; else `model`
    tensor_parallel: int = 1
    has_dry: bool = False  # all requests of ours have DRY
    executor: Literal["uni", "mp"] = "uni"  # with one rank: in the engine core's process, or in its own
    max_batch: int = 256
    model: str
    folder: str  # short: it holds sockets
    corpora: str  # folder of the documents
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
    method: str = "draft"  # of rankbench.methods, on a virtual GPU
    profile: str = ""  # where a rank writes its profile
    then: list[int] = []  # batches that follow it, each of so many sequences that generate `tokens` each
    tokens: int = 0  # of each sequence, whatever the steps; 0: as many as the steps take


class Served(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """What became of a batch. `cpu_s` is of the engine's processes; `ranks` in their order.

    `wall_s` is from the first step to the last answer; a virtual GPU's own time is in `ranks`. `token_s` is
    each sequence's time per token behind its first, as the client saw it. `accepted` are a real model's
    accepted drafts, of each step of each sequence. `backends` are of the guided sequences.
    """

    tokens: int
    cpu_s: float
    wall_s: float
    token_s: list[float] = []
    accepted: list[int] = []
    backends: dict[int, str] = {}
    ranks: list[Report]


class Failed(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The batch was not served as it should be."""

    reason: str
