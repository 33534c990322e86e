"""The engine matrix: which engines are compared, and what they are asked.

Reference: upstream's sync, unspeculated output of the same backend, whitespace flexible, float32,
temperature 0. A rank-guided engine serves both backends, so it answers for two.
"""

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from devtools import tinyheads, tinymodel

from guided_contract.compatibility import minor_of
from guided_contract.config import GuidedDecodingConfig, LogitsProcessorConfig, PodConfig
from guided_contract.wire import Backend
from guided_engine.versions import installed_vllm
from support.adapter import adapter
from support.matrix_process import Job, Runner

BACKENDS: tuple[Backend, ...] = ("xgrammar", "guidance")

# After "ab" nothing can follow; no proof has refused it.
DEAD_END = 'root ::= "ab" []'
PROCESSORS = [
    LogitsProcessorConfig(name=name, factory=factory, params=params, apply_by_default=False)
    for name, factory, params in (
        ("no-repeat", "guided_engine.processors.no_repeat_ngram:NoRepeatNgram", {"size": 2, "penalty": 1e2}),
        ("waves", "support.odd_processors:Waves", {}),
        ("nan", "support.odd_processors:GivesNan", {}),
        ("nothing", "support.odd_processors:LeavesNothing", {}),
        ("only", "support.odd_processors:Only", {"token": 1}),
        ("fails", "support.failing:FailsLater", {"after": 3}),
    )
]


# EAGLE-3 and MTP: devtools.tinyheads.
Speculation = Literal[
    "none",
    "draft",
    "ngram",
    "ngram_gpu",
    "eagle3",
    "eagle3-random",
    "eagle3-probabilistic",
    "eagle3-block",
    "eagle3-adaptive",
    "mtp",
]
DRAFTS = 3
GUESSED = 0.3  # the share of its drafts that a trained drafter surely has accepted


@dataclass(frozen=True, slots=True)
class Cell:
    """One rank-guided engine; what is asynchronous also caches prefixes."""

    runner: Runner
    tensor_parallel: int
    speculation: Speculation
    is_async: bool
    pipeline_parallel: int = 1
    is_sharded: bool = False
    has_adapter: bool = False
    num_drafts: int = DRAFTS

    @property
    def name(self) -> str:
        parallel = f"tp{self.tensor_parallel}" + (
            f"pp{self.pipeline_parallel}" if self.pipeline_parallel > 1 else ""
        )
        mode = (
            ("async" if self.is_async else "sync")
            + ("-sharded" if self.is_sharded else "")
            + ("-lora" if self.has_adapter else "")
        )
        drafts = "" if self.num_drafts == DRAFTS else f"-k{self.num_drafts}"
        return f"{self.runner}-{parallel}-{self.speculation}{drafts}-{mode}"

    @property
    def ranks(self) -> int:
        return self.tensor_parallel * self.pipeline_parallel

    @property
    def shares_a_process(self) -> bool:
        """Tell whether the rank runs in the engine core's process."""
        return self.is_async and self.ranks == 1

    @property
    def speculates(self) -> bool:
        return self.speculation != "none"

    @property
    def sync(self) -> "Cell":
        """The synchronous cell with its drafts: a draft model, or layer, gives the same to both runners."""
        runner: Runner = "V1" if self.speculation in {"draft", "ngram", "mtp"} else "V2"
        return Cell(runner, 1, self.speculation, is_async=False, num_drafts=self.num_drafts)

    @property
    def keeps_seeds(self) -> bool:
        """Tell whether drafts are drawn by a request's seed (docs/upstream-quirks.md)."""
        return (self.runner, self.speculation) != ("V1", "eagle3-probabilistic")

    @property
    def reads_hidden_states(self) -> bool:
        return self.speculation.startswith(("eagle3", "mtp"))


_NAME = re.compile(r"(V.)-tp(.)(?:pp(.))?-(.+?)(?:-k(.))?-(a?sync)(-sharded)?(-lora)?")


def _named(name: str) -> Cell:
    found = _NAME.fullmatch(name)
    assert found, name
    runner, tensor, stages, speculation, drafts, mode, sharded, lora = found.groups()
    return Cell(
        runner,  # type: ignore[arg-type]  # the list below is right
        int(tensor),
        speculation,  # type: ignore[arg-type]
        is_async=mode == "async",
        pipeline_parallel=int(stages or 1),
        is_sharded=bool(sharded),
        has_adapter=bool(lora),
        num_drafts=int(drafts or DRAFTS),
    )


# What differs on V1, then what neither TP nor a draft model shows: the CPU's ngram drafts, which vLLM runs in
# sync alone; the GPU's, which V2 has; stages, of which the last samples; ranks that sample a share
# each; an adapter. (A draft model with stages ends vLLM: docs/upstream-quirks.md.) Last, what drafts from the
# model's hidden states.
_FULL = """
V2-tp1-none-sync V2-tp1-none-async V2-tp1-draft-sync V2-tp1-draft-async
V2-tp2-none-sync V2-tp2-none-async V2-tp2-draft-sync V2-tp2-draft-async
V1-tp1-none-async V1-tp2-draft-async V1-tp1-draft-sync V1-tp1-ngram-sync
V2-tp1-ngram_gpu-async V2-tp1-ngram_gpu-sync V2-tp2-ngram_gpu-async V2-tp2-ngram_gpu-sync
V2-tp1pp2-none-async V2-tp1pp2-ngram_gpu-async V1-tp1pp2-none-sync
V2-tp2-draft-async-sharded V2-tp1-none-async-lora
V2-tp1-eagle3-sync V2-tp1-eagle3-async V2-tp1-eagle3-k1-async V2-tp1-eagle3-random-async
V2-tp1-eagle3-probabilistic-sync V2-tp1-eagle3-probabilistic-async
V2-tp1-eagle3-block-sync V2-tp1-eagle3-block-async V2-tp2-eagle3-async V2-tp1pp2-eagle3-async
V2-tp1-mtp-async V2-tp1-mtp-sync V2-tp1-mtp-k1-async V2-tp2-mtp-async V2-tp1pp2-mtp-async
V1-tp1-mtp-sync V1-tp1-mtp-async V1-tp1-eagle3-async V1-tp1-eagle3-probabilistic-async
"""
FULL = [*map(_named, _FULL.split())]
# Each tensor parallelism, runner and scheduling, V2 once: Triton interprets it here for minutes. A draft
# model, and a method that drafts from hidden states; what drafts nothing is what tests/e2e asks.
FEW = [*map(_named, ("V2-tp2-draft-async", "V1-tp1-draft-sync", "V1-tp1-mtp-async"))]


def is_full() -> bool:
    """Tell whether every cell is asked for (make test-matrix)."""
    return os.environ.get("MATRIX") == "full"


def here() -> list[Cell]:
    """Return the cells that MATRIX asks for: all, or by name, else a few.

    Model Runner V2 of vLLM 0.31 has no n-grams.
    """
    asked = os.environ.get("MATRIX")
    cells = FULL if is_full() else [_named(name) for name in asked.split()] if asked else FEW
    is_old = minor_of(installed_vllm() or "") == "0.31"
    return [cell for cell in cells if not (is_old and cell.speculation == "ngram_gpu")]


def rank_job(cell: Cell, folder: Path) -> Job:
    model, tokenizer = str(model_of(cell.speculation)), str(tinymodel.models() / "tiny")
    pod = PodConfig(
        name="matrix",
        model=model,
        tokenizer=tokenizer,
        served_name="tiny",
        run_dir=str(folder),
        tensor_parallel=cell.tensor_parallel,
        pipeline_parallel=cell.pipeline_parallel,
        logits_processors=PROCESSORS,
        guided_decoding=GuidedDecodingConfig(compare_every=1),
    )
    return Job(
        answer=str(folder / "answer.json"),
        model=model,
        speculation=speculation(cell.speculation, cell.num_drafts),
        arguments={
            "tokenizer": tokenizer,
            "tensor_parallel_size": cell.tensor_parallel,
            "pipeline_parallel_size": cell.pipeline_parallel,
            "enable_batch_sharded_sampling": cell.is_sharded,
            "async_scheduling": cell.is_async,
            "enable_prefix_caching": cell.is_async,
            # As a GPU has it, where masks are made while the engine core reads the last step.
            **({"distributed_executor_backend": "uni"} if cell.shares_a_process else {}),
            # Few blocks: requests are preempted and resumed. Few tokens a step: prompts come in chunks.
            "block_size": 32,
            "num_gpu_blocks_override": 16,
            "max_num_batched_tokens": 160,
            **lora_arguments(has_adapter=cell.has_adapter),
        },
        adapter=str(adapter()) if cell.has_adapter else None,
        pod=pod,
    )


def lora_arguments(*, has_adapter: bool) -> dict[str, Any]:
    return {"enable_lora": True, "max_lora_rank": 8} if has_adapter else {}


def model_of(method: Speculation) -> Path:
    """Return the model that speculates so: tiny, or tiny's weights in MiMo's architecture."""
    return tinyheads.heads() / "mimo" if method == "mtp" else tinymodel.models() / "tiny"


# How drafts are sampled and verified where it is not vLLM's usual way; the last needs CUDA graphs.
_WAYS: dict[str, dict[str, Any]] = {
    "eagle3-probabilistic": {"draft_sample_method": "probabilistic"},
    "eagle3-block": {"rejection_sample_method": "block"},
    "eagle3-adaptive": {"enable_adaptive_verification": True},
}


def speculation(method: Speculation, num_drafts: int) -> dict[str, Any]:
    """Return vLLM's `speculative_config`, empty for none."""
    settings: dict[str, Any]
    match method:
        case "none":
            return {}
        case "draft":
            settings = {"method": "draft_model", "model": str(tinymodel.models() / "tiny-draft")}
        case "eagle3" | "eagle3-random":
            settings = {"method": "eagle3", "model": str(tinyheads.heads() / method)}
        case "eagle3-probabilistic" | "eagle3-block" | "eagle3-adaptive":
            return speculation("eagle3", num_drafts) | _WAYS[method]
        case "mtp":
            settings = {"method": "mtp"}
        case _:
            settings = {"method": method, "prompt_lookup_min": 1, "prompt_lookup_max": 3}
    return settings | {"num_speculative_tokens": num_drafts}


def accepted_share(answers: dict[str, Any]) -> float:
    """Return which share of the proposed drafts was accepted."""
    counted = [request for backend in BACKENDS for request in answers["drafts"][backend]]
    accepted, proposed = (sum(sum(one[name]) for one in counted) for name in ("accepted", "proposed"))
    return accepted / proposed
