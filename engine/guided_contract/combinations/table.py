"""The table, a line of data for each row, and what it says of an engine."""

from collections.abc import Iterator
from typing import Final

from guided_contract.combinations.row import Facts, Happens, Row

_SYNC_STAGES: Final = (
    "Async scheduling is disabled because the V1 model runner does not support it with pipeline parallelism."
)
# fmt: off
FOREIGN: Final = Row("a class of vLLM's V1 interface", "plugin refuses", "logitsProcessors", "a logits processor of vLLM's V1 interface with a state of its own goes by the slots of Model Runner V1's batch, and those neither follow drafts nor exist on Model Runner V2: write it as a ProcessorFactory or as an AdapterLogitsProcessor")
ROWS: Final = (
    Row("NGram; on a CPU; scheduling Auto", "falls back to sync", "speculative.method", "on a CPU NGram is vLLM's ngram, which it schedules synchronously: use another method to have it asynchronous there", "Async scheduling not supported with ngram-based speculative decoding and will be disabled."),
    Row("NGram; on a CPU; scheduling Async", "operator refuses", "speculative.asyncScheduling", "on a CPU NGram is vLLM's ngram, which it schedules synchronously alone: use Auto or Off, or another method"),
    Row("a drafting model; on a CPU; scheduling Auto", "falls back to sync", "speculative.asyncScheduling", "on a CPU nothing overlaps, and drafts are verified synchronously: set asyncScheduling to On to have it asynchronous there"),
    Row("DSpark; V1", "operator refuses", "speculative.method", "Model Runner V1 has no DSpark: use Model Runner V2, or another method"),
    Row("probabilistic drafts; NGram", "operator refuses", "speculative.draftSampling", "NGram has no draft model that could sample: leave it out"),
    Row("verification Block; V1; NGram or DraftModel or Eagle3 or MTP or DFlash", "operator refuses", "speculative.verification", "Model Runner V1 does not verify in blocks, but each token by itself: use Fixed, or Model Runner V2"),
    Row("verification Adaptive; NGram; on a GPU", "operator refuses", "speculative.verification", "Adaptive goes by what a draft model is sure of, and NGram has none: use Fixed, or Block on Model Runner V2"),
    Row("verification Adaptive; LoRA; a drafting model", "operator refuses", "speculative.verification", "vLLM's adapters go by the batch before it is trimmed: use Fixed, or Block on Model Runner V2, or no adapters"),
    Row("verification Adaptive; pipeline stages; MTP or Eagle3 or DSpark or DFlash; on a GPU", "operator refuses", "speculative.verification", "only the last pipeline stage knows how many tokens are left to verify: use Fixed, or Block on Model Runner V2, or set parallelism.pipeline to 1"),
    Row("verification Adaptive; on a CPU; speculation", "operator refuses", "speculative.verification", "Adaptive needs full CUDA graphs, and a CPU has none: use Fixed, or Block on Model Runner V2"),
    Row("verification Adaptive; no full CUDA graphs; on a GPU; a drafting model", "operator refuses", "speculative.verification", "Adaptive needs full CUDA graphs, and --enforce-eager, or another argument, leaves them out: use Fixed, or Block on Model Runner V2, or remove the argument"),
    Row("verification Adaptive; V1; on a GPU; a drafting model", "operator refuses", "speculative.verification", "Model Runner V1 has no Adaptive: use Fixed, or Model Runner V2"),
    Row("verification Adaptive; batch-sharded sampling; tensor parallelism; a drafting model; on a GPU", "operator refuses", "speculative.verification", "the device decides how many rows each sequence has, and shards are planned on the host: use Fixed, or Block on Model Runner V2, or remove --enable-batch-sharded-sampling"),
    Row("verification Adaptive; a DenseFactory; a drafting model; on a GPU", "plugin refuses", "speculative.verification", "the rows of a step are known to the device alone, and a DenseFactory is given rows: use Fixed, or Block on Model Runner V2, or processors that edit token ids"),
    Row("pipeline stages; no speculation; V1; scheduling Auto", "falls back to sync", "parallelism.pipeline", "Model Runner V1 schedules pipeline stages synchronously: use Model Runner V2", _SYNC_STAGES),
    Row("pipeline stages; NGram or Eagle3 or MTP or DFlash; V1; scheduling Auto; on a GPU", "falls back to sync", "parallelism.pipeline", "Model Runner V1 schedules pipeline stages synchronously: use Model Runner V2", _SYNC_STAGES),
    Row("pipeline stages; V1; scheduling Async; NGram or Eagle3 or MTP or DFlash; on a GPU", "operator refuses", "speculative.asyncScheduling", "Model Runner V1 schedules pipeline stages synchronously alone: use Auto or Off, or Model Runner V2"),
    Row("pipeline stages; DraftModel", "operator refuses", "speculative.method", "vLLM runs no draft model behind pipeline stages; its engine core dies at the first draft: set parallelism.pipeline to 1, or use another method"),
    Row("pipeline stages; MTP or Eagle3 or DSpark or DFlash; V2; placement Scheduler; scheduling Auto or scheduling Async", "falls back to few drafts", "guidedDecoding.placement", "behind pipeline stages vLLM's scheduler masks without the drafts, so guided requests have few accepted: use placement Rank"),
    Row("pipeline stages; NGram; V2; placement Scheduler; on a GPU; scheduling Auto or scheduling Async", "falls back to few drafts", "guidedDecoding.placement", "behind pipeline stages vLLM's scheduler masks without NGram's drafts, so guided requests have few accepted: use placement Rank"),
    Row("logits processors; placement Scheduler", "operator refuses", "logitsProcessors", "logits processors run on the ranks, and not with guidedDecoding.placement Scheduler: use placement Rank"),
    Row("a processor without `supports_speculation`; V1; NGram or DraftModel or Eagle3 or MTP or DFlash", "plugin refuses", "logitsProcessors", "Model Runner V1 cannot be told to refuse the drafts of a sequence, and one of the logits processors takes none (supports_speculation = False): use Model Runner V2, or leave out speculation"),
    FOREIGN,
    Row("LoRA; more drafts than a step has room for; speculation; verification not Adaptive", "operator refuses", "speculative.numTokens", "with adapters vLLM wants room in a step for what a full batch verifies, --max-num-seqs times (numTokens + 1) tokens; by its defaults there is room for 7 drafts, on some devices for 15: set fewer numTokens, a smaller --max-num-seqs, or more --max-num-batched-tokens"),
    Row("`disableAbove`; several engines; speculation", "operator refuses", "speculative.disableAbove", "vLLM has one number of draft tokens for several engines, each of which would choose: set parallelism.data to 1"),
    Row("`disableAbove`; one engine; V1; on a GPU; full CUDA graphs; DraftModel or Eagle3 or MTP or DFlash", "falls back", "speculative.disableAbove", "on Model Runner V1 the graphs are piecewise with disableAbove: use Model Runner V2"),
    Row("`disableAbove`; one engine; V1; on a GPU; NGram", "operator refuses", "speculative.disableAbove", "Model Runner V1's ngram_gpu ends the engine where disableAbove changes its number of drafts: use Model Runner V2"),
    Row("`numTokens: Auto`; several engines; speculation", "operator refuses", "speculative.numTokens", "vLLM has one number of draft tokens for several engines, each of which would choose: set a number, or parallelism.data to 1"),
    Row("`numTokens: Auto`; one engine; V1; on a GPU; full CUDA graphs; DraftModel or Eagle3 or MTP or DFlash", "falls back", "speculative.numTokens", "on Model Runner V1 the graphs are piecewise with numTokens Auto: use Model Runner V2"),
    Row("`numTokens: Auto`; one engine; V1; on a GPU; NGram", "operator refuses", "speculative.numTokens", "Model Runner V1's ngram_gpu ends the engine where numTokens Auto changes its number of drafts: use Model Runner V2"),
    Row("`numTokens: Auto`; `disableAbove`; speculation", "operator refuses", "speculative.disableAbove", "Auto finds by itself above which batch size drafts do not pay: set a number, or leave disableAbove out"),
    Row("`numTokens: Auto`; verification Adaptive; a drafting model; on a GPU", "operator refuses", "speculative.numTokens", "Auto and Adaptive would both choose how many drafts are verified, each by the other's choice: set a number, or use Fixed, or Block on Model Runner V2"),
    Row("batch-sharded sampling; one rank", "operator refuses", "engine.args", "--enable-batch-sharded-sampling has nothing to shard on one rank: remove it, or set parallelism.tensor above 1"),
    Row("batch-sharded sampling; tensor parallelism; fewer sequences than ranks, or `--max-logprobs=-1`; V2; verification not Adaptive", "operator refuses", "engine.args", "--enable-batch-sharded-sampling shares out sequences to ranks, with a bounded number of log probabilities: remove it, or set --max-num-seqs to parallelism.tensor or more, and no --max-logprobs=-1"),
    Row("batch-sharded sampling; tensor parallelism; V1", "operator refuses", "engine.args", "Model Runner V1 has no batch-sharded sampling: remove --enable-batch-sharded-sampling, or use Model Runner V2"),
    Row("dual batch overlap; V1; on a GPU; no speculation or NGram or DraftModel or Eagle3 or MTP or DFlash", "falls back", "engine.args", "with dual batch overlap vLLM takes Model Runner V1, unless V2 is asked for: remove --enable-dbo or --ubatch-size, to have Model Runner V2"),
    Row("dual batch overlap; V1; on a GPU; DSpark", "operator refuses", "engine.args", "with dual batch overlap vLLM takes Model Runner V1, which has no DSpark: remove --enable-dbo or --ubatch-size, or use another method"),
    Row("dual batch overlap; on a CPU", "falls back", "engine.args", "a CPU has none, and vLLM leaves --enable-dbo out: remove it"),
    Row("dual batch overlap; V2; on a GPU; speculation", "operator refuses", "engine.args", "Model Runner V2 has no dual batch overlap with speculative decoding: remove --enable-dbo or --ubatch-size, or speculative"),
    Row("dual batch overlap; V2; on a GPU; LoRA", "operator refuses", "engine.args", "Model Runner V2 has no dual batch overlap with LoRA: remove --enable-dbo or --ubatch-size, or lora"),
    Row("dual batch overlap; V2; on a GPU; pipeline stages", "operator refuses", "engine.args", "Model Runner V2 has no dual batch overlap with pipeline parallelism: remove --enable-dbo or --ubatch-size, or set parallelism.pipeline to 1"),
    Row("fast prefill; MTP or Eagle3 or DSpark or DFlash", "operator refuses", "engine.args", "drafts from the model's hidden states need all of a prompt's; fast prefill leaves some out: remove --kv-sharing-fast-prefill, or use another method"),
    Row("more active sequences than places", "operator refuses", "engine.args", "vLLM runs no more sequences, --max-num-active-seqs, than it has places for, --max-num-seqs: set fewer, or a larger --max-num-seqs"),
    Row("fewer tokens a step than places", "operator refuses", "engine.args", "vLLM wants --max-num-batched-tokens to have a token for each sequence of --max-num-seqs: set more, or a smaller --max-num-seqs"),
)
# fmt: on


def that_hold(facts: Facts, *happens: Happens) -> Iterator[Row]:
    """Yield the rows that hold of an engine: those by which any of this happens."""
    return (row for row in ROWS if row.happens in happens and row.holds(facts))
