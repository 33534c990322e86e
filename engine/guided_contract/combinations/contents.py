"""On what an engine runs, and what else is in it."""

from typing import Final

from guided_contract.combinations.row import ALL, HEADS, MATRIX, NO, ON_V1, YES, Row

FOREIGN: Final = Row(
    name="classes of vLLM's V1 interface",
    when={"foreign": YES},
    verdict="Refused",
    says="a logits processor of vLLM's V1 interface with a state of its own goes by the slots of Model "
    "Runner V1's batch, and those neither follow drafts nor exist on Model Runner V2",
    instead="write it as a ProcessorFactory or as an AdapterLogitsProcessor",
    field="logitsProcessors",
    decided_by=("Plugin",),
)
CONTENT_ROWS: Final = (
    Row(
        name="GPUs, but for a small part on one H200",
        when={"device": ("CUDA",)},
        verdict="NotRun",
        says="what is supported ran on a CPU, Model Runner V2 by Triton's interpreter. Of it tests/gpu has "
        "compared, on an H200: one rank, V2, asynchronous, a tiny model in float32 without torch.compile, "
        "without drafts, and with DraftModel, NGram, Eagle3, and MTP of one draft token",
    ),
    Row(
        name="GPUs that are not NVIDIA's",
        when={"device": ("Other",)},
        verdict="NotRun",
        says="no such device has run anything of ours",
    ),
    Row(
        name="masks in vLLM's scheduler",
        when={"on_ranks": NO, "processors": NO},
        verdict="Supported",
        says="vLLM's own path, which the plugin leaves alone",
        test="tests/e2e/test_scheduler_placement.py",
    ),
    Row(
        name="processors without ranks",
        when={"processors": YES, "on_ranks": NO},
        verdict="Refused",
        says="logits processors run on the ranks, and not with guidedDecoding.placement Scheduler",
        instead="use placement Rank",
        field="logitsProcessors",
        decided_by=("CEL",),
    ),
    Row(
        name="processors",
        when={"processors": YES, "on_ranks": YES, "runner": ("V2",)},
        verdict="Supported",
        says="edits come after the mask, on each draft's row",
        test=f"{MATRIX} V2-tp2-draft-async",
    ),
    Row(
        name="processors on V1",
        when={"processors": YES, "on_ranks": YES, "runner": ("V1",)},
        verdict="Supported",
        says="edits come after the mask, on each draft's row; before vLLM's bias and penalties",
        test=f"{MATRIX} V1-tp1-draft-sync",
    ),
    Row(
        name="processors that take no drafts on V1",
        when={"undrafted": YES, "runner": ("V1",), "method": ON_V1},
        verdict="Refused",
        says="Model Runner V1 cannot be told to refuse the drafts of a sequence, and one of the logits "
        "processors takes none (supports_speculation = False)",
        instead="use Model Runner V2, or leave out speculation",
        field="logitsProcessors",
        decided_by=("Plugin",),
    ),
    FOREIGN,
    Row(
        name="LoRA",
        when={"lora": YES, "method": ("",), "runner": ("V2",)},
        verdict="Supported",
        says="adapters have the model's guided decoding",
        test=f"{MATRIX} V2-tp1-none-async-lora",
        is_async=True,
    ),
    Row(
        name="LoRA on V1",
        when={"lora": YES, "method": ("",), "runner": ("V1",)},
        verdict="NotRun",
        says="on Model Runner V1 we ran adapters with a draft model alone",
        field="lora",
    ),
    Row(
        name="LoRA and a draft model on V1",
        when={"lora": YES, "method": ("DraftModel",), "runner": ("V1",), "adaptive": NO},
        verdict="Supported",
        says="the draft model proposes for adapters, too",
        test="tests/e2e/test_run_fields.py",
    ),
    Row(
        name="LoRA and a draft model on V2",
        when={"lora": YES, "method": ("DraftModel",), "runner": ("V2",), "adaptive": NO},
        verdict="NotRun",
        says="on Model Runner V2 we ran adapters without drafts alone",
        field="lora",
    ),
    Row(
        name="LoRA and other methods than DraftModel",
        when={"lora": YES, "method": ("NGram", "MTP", *HEADS), "adaptive": NO},
        verdict="NotRun",
        says="adapters change what a head or the text proposes well",
        field="lora",
    ),
    Row(
        name="LoRA and more drafts than a step has room for",
        when={"lora": YES, "crowded": YES, "method": ALL, "adaptive": NO},
        verdict="Refused",
        says="with adapters vLLM wants room in a step for what a full batch verifies, engine.maxNumSeqs "
        "times (numTokens + 1) tokens; by its defaults there is room for 7 drafts, on some devices for 15",
        instead="set fewer numTokens, a smaller engine.maxNumSeqs, or more --max-num-batched-tokens",
        field="speculative.numTokens",
        decided_by=("Operator", "vLLM"),
        words="Consider increasing max_num_batched_tokens or decreasing num_speculative_tokens",
    ),
    Row(
        name="multimodal models",
        when={"multimodal": YES},
        verdict="NotRun",
        says="the model takes more than text; grammars hold for what it generates",
    ),
    Row(
        name="a reasoning parser of a file",
        when={"reasoning_plugin": YES},
        verdict="Supported",
        says="the plugin imports it on the ranks, where vLLM does not and a draft model then fails; the "
        "resource cannot name one",
        test=f"{MATRIX} V2-tp2-draft-async",
    ),
)
