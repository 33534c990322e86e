"""A step's batch, shared out to ranks that sample, or run as two that overlap."""

from typing import Final

from guided_contract.combinations.row import ALL, ASYNC, GPUS, MATRIX, NO, YES, Resolves, Row

BATCH_ROWS: Final = (
    Row(
        name="batch-sharded sampling",
        when={"sharded": YES, "split": YES, "runner": ("V2",), "adaptive": NO},
        verdict="Supported",
        says="each rank masks the rows that it samples",
        test=f"{MATRIX} V2-tp2-draft-async-sharded",
        resolves=ASYNC,
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
        when={"dbo": YES, "runner": ("",), "device": GPUS, "method": ("", "NGram", "Eagle3", "MTP")},
        verdict="FallsBack",
        says="with --enable-dbo vLLM takes Model Runner V1",
        instead="remove it, to have Model Runner V2",
        field="engine.args",
        words="Model Runner V2 does not yet support dual batch overlap; using the V1 model runner instead.",
        resolves=Resolves(runner="V1"),
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
        name="dual batch overlap on V2",
        when={"dbo": YES, "runner": ("V2",), "method": ALL, "device": GPUS},
        verdict="Refused",
        says="Model Runner V2 does not speculate with dual batch overlap",
        instead="remove --enable-dbo, or speculative",
        field="engine.args",
        decided_by=("Operator", "vLLM"),
        words="dual batch overlap with speculative decoding",
    ),
    Row(
        name="dual batch overlap on V2 with LoRA",
        when={"dbo": YES, "runner": ("V2",), "method": ("",), "lora": YES, "device": GPUS},
        verdict="Refused",
        says="Model Runner V2 has no LoRA with dual batch overlap",
        instead="remove --enable-dbo, or lora",
        field="engine.args",
        decided_by=("Operator", "vLLM"),
        words="dual batch overlap with LoRA",
    ),
)
