"""A step's batch: shared out to ranks that sample, run as two that overlap, with fast prefill; its limits."""

from collections.abc import Mapping
from typing import Any, Final

from guided_contract.combinations.row import ALL, GPUS, HEADS, MATRIX, NO, ON_V1, YES, Decider, Row

_REMOVE: Final = "remove --enable-dbo or --ubatch-size"
_V1: Final = "use Model Runner V1"


def _not_overlapped(
    name: str,
    when: Mapping[str, tuple[Any, ...]],
    what: str,
    instead: str,
    decided_by: tuple[Decider, ...] = ("Operator", "vLLM"),
) -> Row:
    """Return what Model Runner V2 refuses beside batches that overlap; `what` is vLLM's word for it."""
    return Row(
        name=f"dual batch overlap on V2 {name}",
        when={"dbo": YES, "runner": ("V2",), "device": GPUS, **when},
        verdict="Refused",
        says=f"Model Runner V2 has no dual batch overlap with {what}",
        instead=f"{_REMOVE}, or {instead}",
        field="engine.args",
        decided_by=decided_by,
        words=f"dual batch overlap with {what}",
    )


BATCH_ROWS: Final = (
    Row(
        name="batch-sharded sampling",
        when={"sharded": YES, "split": YES, "runner": ("V2",), "adaptive": NO},
        verdict="Supported",
        says="each rank masks the rows that it samples",
        test=f"{MATRIX} V2-tp2-draft-async-sharded",
        is_async=True,
    ),
    Row(
        name="batch-sharded sampling on one rank",
        when={"sharded": YES, "split": NO},
        verdict="Refused",
        says="--enable-batch-sharded-sampling has nothing to shard on one rank",
        instead="remove it, or set parallelism.tensor above 1",
        field="engine.args",
        decided_by=("Operator", "vLLM"),
        words="sampling",
    ),
    Row(
        name="batch-sharded sampling of too few or without bounds",
        when={"sharded": YES, "split": YES, "unshardable": YES, "runner": ("V2",), "adaptive": NO},
        verdict="Refused",
        says="--enable-batch-sharded-sampling shares out sequences to ranks, with a bounded number of log "
        "probabilities",
        instead="remove it, or set engine.maxNumSeqs to parallelism.tensor or more, and no --max-logprobs=-1",
        field="engine.args",
        decided_by=("Operator", "vLLM"),
        words="is not supported in this configuration for the following reason(s)",
    ),
    Row(
        name="batch-sharded sampling on V1",
        when={"sharded": YES, "split": YES, "runner": ("V1",)},
        verdict="Refused",
        says="Model Runner V1 has no batch-sharded sampling",
        instead="remove --enable-batch-sharded-sampling, or use Model Runner V2",
        field="engine.args",
        decided_by=("Operator", "vLLM"),
        words="Model Runner V1 does not support: batch-sharded sampling",
    ),
    Row(
        name="dual batch overlap",
        when={"dbo": YES, "runner": ("V1",), "device": GPUS, "method": ("", *ON_V1)},
        verdict="FallsBack",
        says="with dual batch overlap vLLM takes Model Runner V1, unless V2 is asked for",
        instead=f"{_REMOVE}, to have Model Runner V2",
        field="engine.args",
        words="Model Runner V2 does not yet support dual batch overlap; using the V1 model runner instead.",
    ),
    Row(
        name="dual batch overlap of DSpark",
        when={"dbo": YES, "runner": ("V1",), "device": GPUS, "method": ("DSpark",)},
        verdict="Refused",
        says="with dual batch overlap vLLM takes Model Runner V1, which has no DSpark",
        instead=f"{_REMOVE}, or use another method",
        field="engine.args",
        decided_by=("Operator", "vLLM"),
        words="Model Runner V1 does not support: dspark speculative decoding",
    ),
    Row(
        name="dual batch overlap on a CPU",
        when={"dbo": YES, "device": ("CPU",)},
        verdict="FallsBack",
        says="a CPU has none, and vLLM leaves --enable-dbo out",
        instead="remove it",
        field="engine.args",
        words="Dual-Batch Overlap is not supported on CPU, disabled.",
    ),
    Row(
        name="batches that overlap",
        when={"dbo": YES, "device": GPUS},
        verdict="NotRun",
        says="neither runner has overlapped batches here",
        field="engine.args",
    ),
    _not_overlapped("with speculation", {"method": ALL}, "speculative decoding", "speculative"),
    _not_overlapped("with LoRA", {"lora": YES}, "LoRA", "lora"),
    _not_overlapped(
        "behind stages", {"staged": YES}, "pipeline parallelism", "set parallelism.pipeline to 1"
    ),
    _not_overlapped(
        "with context parallelism",
        {"context_parallel": YES, "split": YES},
        "context parallelism",
        "--decode-context-parallel-size",
    ),
    _not_overlapped(
        "with piecewise graphs",
        {"piecewise": YES},
        "PIECEWISE CUDA graphs",
        "the argument that asks for piecewise graphs",
    ),
    # The model alone says that it is one.
    _not_overlapped("of multimodal models", {"multimodal": YES}, "multimodal models", _V1, ("vLLM",)),
    _not_overlapped("of hybrid models", {"hybrid": YES}, "hybrid models", _V1, ("vLLM",)),
    Row(
        name="batches that overlap by DeepEP's high throughput on ROCm",
        when={"high_throughput": YES, "device": ("Other",), "scheduling": ("",)},
        verdict="FallsBack",
        says="on ROCm vLLM then schedules synchronously",
        instead="use another --all2all-backend",
        field="engine.args",
        words="Async scheduling is disabled for ROCm DeepEP high-throughput DBO",
        is_async=False,
    ),
    Row(
        name="batches that overlap by DeepEP's high throughput on ROCm, asynchronously",
        when={"high_throughput": YES, "device": ("Other",), "scheduling": ("Async",)},
        verdict="Refused",
        says="on ROCm vLLM then schedules synchronously alone",
        instead="use Auto or Off, or another --all2all-backend",
        field="speculative.asyncScheduling",
        words="Async scheduling is not compatible with ROCm DeepEP high-throughput DBO",
    ),
    Row(
        name="fast prefill",
        when={"fast_prefill": YES, "method": ("MTP", *HEADS)},
        verdict="Refused",
        says="drafts from the model's hidden states need all of a prompt's; fast prefill leaves some out",
        instead="remove --kv-sharing-fast-prefill, or use another method",
        field="engine.args",
        decided_by=("Operator", "vLLM"),
        words="Fast prefill optimization for KV sharing is not compatible with EAGLE",
    ),
    Row(
        name="more sequences at a time than places",
        when={"overactive": YES},
        verdict="Refused",
        says="vLLM runs no more sequences, --max-num-active-seqs, than it has places for, engine.maxNumSeqs",
        instead="set fewer, or a larger engine.maxNumSeqs",
        field="engine.args",
        decided_by=("Operator", "vLLM"),
        words="cannot be greater than max_num_seqs",
    ),
    Row(
        name="fewer tokens a step than sequences",
        when={"short_step": YES},
        verdict="Refused",
        says="vLLM wants --max-num-batched-tokens to have a token for each sequence of engine.maxNumSeqs",
        instead="set more, or a smaller engine.maxNumSeqs",
        field="engine.args",
        decided_by=("Operator", "vLLM"),
        words="must be greater than or equal to max_num_seqs",
    ),
)
