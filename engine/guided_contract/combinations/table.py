"""The table, a line of data for each row, and what it says of an engine."""

from collections.abc import Iterator
from typing import Final

from guided_contract.combinations.row import Facts, Happens, Row

_SYNC_STAGES: Final = (
    "Async scheduling is disabled because the V1 model runner does not support it with pipeline parallelism."
)
# fmt: off
FOREIGN: Final = Row("a class of vLLM's V1 interface", "plugin refuses", "logitsProcessors", "a processor of vLLM's V1 interface with its own state depends on batch slots of Model Runner V1, which do not follow drafts and do not exist on V2: write it as a ProcessorFactory or AdapterLogitsProcessor")
ROWS: Final = (
    Row("NGram; on a CPU; scheduling Auto; vLLM before 0.33", "falls back to sync", "speculative.method", "on a CPU vLLM schedules NGram synchronously: for async scheduling use another method", "Async scheduling not supported with ngram-based speculative decoding and will be disabled."),
    Row("NGram; on a CPU; scheduling Auto; V1; vLLM 0.33 or later", "falls back to sync", "speculative.method", "on a CPU vLLM schedules NGram synchronously: for async scheduling use another method", "Async scheduling is disabled because the V1 model runner does not support it with ngram-based speculative decoding."),
    Row("NGram; on a CPU; scheduling Async", "operator refuses", "speculative.asyncScheduling", "on a CPU vLLM schedules NGram only synchronously: use Auto or Off, or another method"),
    Row("a drafting model; on a CPU; scheduling Auto", "falls back to sync", "speculative.asyncScheduling", "on a CPU nothing overlaps, so scheduling is synchronous: for async scheduling set asyncScheduling to On"),
    Row("NGram; V2; vLLM 0.31", "operator refuses", "speculative.method", "Model Runner V2 of vLLM 0.31 has no NGram: use Model Runner V1, vLLM 0.32 or later, or another method"),
    Row("DSpark; V1", "operator refuses", "speculative.method", "Model Runner V1 has no DSpark: use Model Runner V2, or another method"),
    Row("probabilistic drafts; NGram", "operator refuses", "speculative.draftSampling", "NGram has no draft model that could sample: remove it"),
    Row("verification Block; V1; NGram or DraftModel or Eagle3 or MTP or DFlash", "operator refuses", "speculative.verification", "Model Runner V1 does not verify in blocks: use Fixed, or Model Runner V2"),
    Row("verification Adaptive; NGram; on a GPU", "operator refuses", "speculative.verification", "Adaptive uses the confidence of a draft model, and NGram has none: use Fixed, or Block on Model Runner V2"),
    Row("verification Adaptive; LoRA; a drafting model", "operator refuses", "speculative.verification", "vLLM applies adapters to the batch before Adaptive trims it: use Fixed, or Block on Model Runner V2, or no adapters"),
    Row("verification Adaptive; pipeline stages; MTP or Eagle3 or DSpark or DFlash; on a GPU", "operator refuses", "speculative.verification", "only the last pipeline stage knows how many tokens are left to verify: use Fixed, or Block on Model Runner V2, or set parallelism.pipeline to 1"),
    Row("verification Adaptive; on a CPU; speculation", "operator refuses", "speculative.verification", "Adaptive needs full CUDA graphs, and a CPU has none: use Fixed, or Block on Model Runner V2"),
    Row("verification Adaptive; no full CUDA graphs; on a GPU; a drafting model", "operator refuses", "speculative.verification", "Adaptive needs full CUDA graphs, which --enforce-eager or another argument turns off: use Fixed, or Block on Model Runner V2, or remove the argument"),
    Row("verification Adaptive; V1; on a GPU; a drafting model", "operator refuses", "speculative.verification", "Model Runner V1 has no Adaptive: use Fixed, or Model Runner V2"),
    Row("verification Adaptive; batch-sharded sampling; tensor parallelism; a drafting model; on a GPU; vLLM before 0.33", "operator refuses", "speculative.verification", "Adaptive decides on the device how many rows a sequence has, but shards are planned on the host: use Fixed, or Block on Model Runner V2, or remove --enable-batch-sharded-sampling"),
    Row("verification Adaptive; a DenseFactory; a drafting model; on a GPU", "plugin refuses", "speculative.verification", "with Adaptive only the device knows the rows of a step, and a DenseFactory needs them: use Fixed, or Block on Model Runner V2, or processors that edit token ids"),
    Row("pipeline stages; no speculation; V1; scheduling Auto", "falls back to sync", "parallelism.pipeline", "Model Runner V1 schedules pipeline stages synchronously: use Model Runner V2", _SYNC_STAGES),
    Row("pipeline stages; NGram or Eagle3 or MTP or DFlash; V1; scheduling Auto; on a GPU", "falls back to sync", "parallelism.pipeline", "Model Runner V1 schedules pipeline stages synchronously: use Model Runner V2", _SYNC_STAGES),
    Row("pipeline stages; V1; scheduling Async; NGram or Eagle3 or MTP or DFlash; on a GPU", "operator refuses", "speculative.asyncScheduling", "Model Runner V1 schedules pipeline stages only synchronously: use Auto or Off, or Model Runner V2"),
    Row("pipeline stages; DraftModel", "operator refuses", "speculative.method", "vLLM's engine core dies at the first draft of a draft model with pipeline stages: set parallelism.pipeline to 1, or use another method"),
    Row("pipeline stages; MTP or Eagle3 or DSpark or DFlash; V2; placement Scheduler; scheduling Auto or scheduling Async", "falls back to few drafts", "guidedDecoding.placement", "with pipeline stages vLLM's scheduler does not see drafts, so few drafts of guided requests are accepted: use placement Rank"),
    Row("pipeline stages; NGram; V2; placement Scheduler; on a GPU; scheduling Auto or scheduling Async", "falls back to few drafts", "guidedDecoding.placement", "with pipeline stages vLLM's scheduler does not see drafts, so few drafts of guided requests are accepted: use placement Rank"),
    Row("logits processors; placement Scheduler", "operator refuses", "logitsProcessors", "logits processors need guidedDecoding.placement Rank: set it"),
    Row("a processor without `supports_speculation`; V1; NGram or DraftModel or Eagle3 or MTP or DFlash", "plugin refuses", "logitsProcessors", "a logits processor takes no drafts (supports_speculation = False), and Model Runner V1 cannot refuse them for one sequence: use Model Runner V2, or remove speculative"),
    FOREIGN,
    Row("LoRA; more drafts than a step has room for; speculation; verification not Adaptive", "operator refuses", "speculative.numTokens", "with adapters, --max-num-batched-tokens must be at least --max-num-seqs * (numTokens + 1); vLLM's defaults allow 7 drafts, on some devices 15: reduce numTokens or --max-num-seqs, or raise --max-num-batched-tokens"),
    Row("`disableAbove`; several engines; speculation", "operator refuses", "speculative.disableAbove", "vLLM has one number of draft tokens for all engines, and each engine would choose its own: set parallelism.data to 1"),
    Row("`disableAbove`; one engine; V1; on a GPU; full CUDA graphs; DraftModel or Eagle3 or MTP or DFlash", "falls back", "speculative.disableAbove", "Model Runner V1 uses piecewise CUDA graphs with disableAbove: use Model Runner V2"),
    Row("`disableAbove`; one engine; V1; on a GPU; NGram; vLLM before 0.33", "operator refuses", "speculative.disableAbove", "Model Runner V1's ngram_gpu ends the engine when disableAbove changes the number of drafts: use Model Runner V2"),
    Row("`disableAbove`; one engine; V1; on a GPU; NGram; vLLM 0.33 or later", "falls back", "speculative.disableAbove", "Model Runner V1's ngram_gpu ignores disableAbove: use Model Runner V2"),
    Row("`numTokens: Auto`; several engines; speculation", "operator refuses", "speculative.numTokens", "vLLM has one number of draft tokens for all engines, and each engine would choose its own: set a number, or parallelism.data to 1"),
    Row("`numTokens: Auto`; one engine; V1; on a GPU; full CUDA graphs; DraftModel or Eagle3 or MTP or DFlash", "falls back", "speculative.numTokens", "Model Runner V1 uses piecewise CUDA graphs with numTokens Auto: use Model Runner V2"),
    Row("`numTokens: Auto`; one engine; V1; on a GPU; NGram; vLLM before 0.33", "operator refuses", "speculative.numTokens", "Model Runner V1's ngram_gpu ends the engine when numTokens Auto changes the number of drafts: use Model Runner V2"),
    Row("`numTokens: Auto`; one engine; V1; on a GPU; NGram; vLLM 0.33 or later", "falls back", "speculative.numTokens", "Model Runner V1's ngram_gpu ignores numTokens Auto: use Model Runner V2"),
    Row("`numTokens: Auto`; `disableAbove`; speculation", "operator refuses", "speculative.disableAbove", "Auto itself finds the batch size above which drafts do not pay: set a number, or remove disableAbove"),
    Row("`numTokens: Auto`; verification Adaptive; a drafting model; on a GPU", "operator refuses", "speculative.numTokens", "Auto and Adaptive would both choose the number of verified drafts: set a number, or use Fixed, or Block on Model Runner V2"),
    Row("batch-sharded sampling; one rank", "operator refuses", "engine.args", "--enable-batch-sharded-sampling has nothing to shard on one rank: remove it, or set parallelism.tensor above 1"),
    Row("batch-sharded sampling; tensor parallelism; fewer sequences than ranks, or `--max-logprobs=-1`; V2; verification not Adaptive", "operator refuses", "engine.args", "--enable-batch-sharded-sampling needs at least one sequence per rank and a bounded number of log probabilities: remove it, or set --max-num-seqs to parallelism.tensor or more and remove --max-logprobs=-1"),
    Row("batch-sharded sampling; tensor parallelism; V1", "operator refuses", "engine.args", "Model Runner V1 has no batch-sharded sampling: remove --enable-batch-sharded-sampling, or use Model Runner V2"),
    Row("dual batch overlap; V1; on a GPU; no speculation or NGram or DraftModel or Eagle3 or MTP or DFlash", "falls back", "engine.args", "vLLM uses Model Runner V1 for dual batch overlap, unless V2 is set: for V2 remove --enable-dbo or --ubatch-size"),
    Row("dual batch overlap; V1; on a GPU; DSpark", "operator refuses", "engine.args", "vLLM uses Model Runner V1 for dual batch overlap, and V1 has no DSpark: remove --enable-dbo or --ubatch-size, or use another method"),
    Row("dual batch overlap; on a CPU", "falls back", "engine.args", "vLLM ignores --enable-dbo on a CPU: remove it"),
    Row("dual batch overlap; V2; on a GPU; speculation", "operator refuses", "engine.args", "Model Runner V2 has no dual batch overlap with speculative decoding: remove --enable-dbo or --ubatch-size, or speculative"),
    Row("dual batch overlap; V2; on a GPU; LoRA", "operator refuses", "engine.args", "Model Runner V2 has no dual batch overlap with LoRA: remove --enable-dbo or --ubatch-size, or lora"),
    Row("dual batch overlap; V2; on a GPU; pipeline stages", "operator refuses", "engine.args", "Model Runner V2 has no dual batch overlap with pipeline parallelism: remove --enable-dbo or --ubatch-size, or set parallelism.pipeline to 1"),
    Row("fast prefill; MTP or Eagle3 or DSpark or DFlash", "operator refuses", "engine.args", "the method needs the hidden states of the entire prompt, and fast prefill skips some: remove --kv-sharing-fast-prefill, or use another method"),
    Row("more active sequences than places", "operator refuses", "engine.args", "--max-num-active-seqs must not exceed --max-num-seqs: reduce it, or raise --max-num-seqs"),
    Row("fewer tokens a step than places", "operator refuses", "engine.args", "--max-num-batched-tokens must be at least --max-num-seqs: raise it, or reduce --max-num-seqs"),
)
# fmt: on


def that_hold(facts: Facts, *happens: Happens) -> Iterator[Row]:
    """Yield the rows that hold of an engine: those by which any of this happens."""
    return (row for row in ROWS if row.happens in happens and row.holds(facts))
