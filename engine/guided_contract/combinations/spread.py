"""How an engine is spread over ranks, and what else is in it."""

from typing import Any, Final

from guided_contract.combinations.row import ALL, ASYNC, GPUS, HEADS, MATRIX, NO, ON_V1, YES, Resolves, Row

_NOT_ITS_DRAFTS: Final = (
    "behind pipeline stages vLLM's scheduler masks without the drafts, so guided requests have few accepted"
)
_SYNC_STAGES: Final[dict[str, Any]] = {
    "says": "Model Runner V1 schedules pipeline stages synchronously",
    "instead": "use Model Runner V2",
    "field": "parallelism.pipeline",
    "words": "Async scheduling is disabled because the V1 model runner does not support it with pipeline "
    "parallelism.",
    "resolves": Resolves(is_async=False, runner="V1"),
}
_PARALLEL: Final = (
    Row(
        name="tensor parallelism",
        when={"split": YES, "method": ("", "DraftModel")},
        verdict="Supported",
        says="each rank masks and verifies, and all agree",
        test=f"{MATRIX} V2-tp2-draft-async",
    ),
    Row(
        name="tensor parallelism with Eagle3",
        when={"split": YES, "method": ("Eagle3",), "runner": ("V2",)},
        verdict="Supported",
        says="each rank has the head, and all propose alike",
        test=f"{MATRIX} V2-tp2-eagle3-async",
    ),
    Row(
        name="tensor parallelism with Eagle3 on V1",
        when={"split": YES, "method": ("Eagle3",), "runner": ("V1",)},
        verdict="NotRun",
        says="we ran Model Runner V2 alone",
        field="parallelism.tensor",
    ),
    Row(
        name="tensor parallelism with Eagle3 elsewhere",
        when={"split": YES, "method": ("Eagle3",), "device": ("CPU", "Other")},
        verdict="NotRun",
        says="which model runner vLLM takes there is not known, and we ran Model Runner V2 alone",
        field="parallelism.tensor",
    ),
    Row(
        name="tensor parallelism of other methods",
        when={"split": YES, "method": ("NGram", "MTP", "DSpark", "DFlash")},
        verdict="NotRun",
        says="with several ranks we ran DraftModel and Eagle3, and NGram with logits processors",
        field="parallelism.tensor",
    ),
    Row(
        name="pipeline stages",
        when={"staged": YES, "method": ("", "NGram"), "runner": ("V2",), "device": GPUS},
        verdict="Supported",
        says="the last stage samples, masks and proposes",
        test=f"{MATRIX} V2-tp1pp2-ngram_gpu-async",
        resolves=ASYNC,
    ),
    Row(
        name="pipeline stages on V1",
        when={"staged": YES, "method": ("",), "runner": ("V1",), "scheduling": ("",)},
        verdict="FallsBack",
        test=f"{MATRIX} V1-tp1pp2-none-sync",
        **_SYNC_STAGES,
    ),
    Row(
        name="pipeline stages on V1 with speculation",
        when={"staged": YES, "method": ("Eagle3", "MTP", "DFlash"), "runner": ("V1",), "scheduling": ("",)},
        verdict="FallsBack",
        **_SYNC_STAGES,
    ),
    # On a CPU vLLM says of NGram that it is ngram, and does not come to stages.
    Row(
        name="pipeline stages on V1 with NGram",
        when={
            "staged": YES,
            "method": ("NGram",),
            "runner": ("V1",),
            "scheduling": ("",),
            "device": GPUS,
        },
        verdict="FallsBack",
        **_SYNC_STAGES,
    ),
    Row(
        name="speculation behind stages on V1",
        when={"staged": YES, "method": ("NGram", "Eagle3", "MTP", "DFlash"), "runner": ("V1",)},
        verdict="NotRun",
        says="on Model Runner V1 we ran stages without speculation alone",
        field="speculative.method",
        resolves=Resolves(is_async=False, runner="V1"),
    ),
    Row(
        name="pipeline stages on V1, asynchronously",
        when={
            "staged": YES,
            "runner": ("V1",),
            "scheduling": ("Async",),
            "method": ("NGram", "Eagle3", "MTP", "DFlash"),
            "device": GPUS,
        },
        verdict="Refused",
        says="Model Runner V1 schedules pipeline stages synchronously alone",
        instead="use Auto or Off, or Model Runner V2",
        field="speculative.asyncScheduling",
        decided_by=("Operator", "vLLM"),
        words="Model Runner V1 does not support: pipeline parallelism with async scheduling",
    ),
    Row(
        name="a draft model behind stages",
        when={"staged": YES, "method": ("DraftModel",)},
        verdict="Refused",
        says="vLLM runs no draft model behind pipeline stages; its engine core dies at the first draft",
        instead="set parallelism.pipeline to 1, or use another method",
        field="speculative.method",
        decided_by=("CEL",),
    ),
    Row(
        name="Eagle3 behind stages",
        when={"staged": YES, "method": ("Eagle3",), "runner": ("V2",)},
        verdict="Supported",
        says="if the model passes its hidden states on (Llama's do), else vLLM refuses it (RefusedAtStart)",
        test=f"{MATRIX} V2-tp1pp2-eagle3-async",
        resolves=ASYNC,
    ),
    Row(
        name="other heads behind stages",
        when={"staged": YES, "method": ("DSpark", "DFlash"), "runner": ("V2",)},
        verdict="NotRun",
        says="if the model passes its hidden states on, else vLLM refuses it at start (RefusedAtStart)",
        field="speculative.method",
        resolves=ASYNC,
    ),
    Row(
        name="MTP behind stages",
        when={"staged": YES, "method": ("MTP",), "runner": ("V2",)},
        verdict="Supported",
        says="the model's own layers run in the last stage; MiMo's, and the tests' own",
        test=f"{MATRIX} V2-tp1pp2-mtp-async",
        resolves=ASYNC,
    ),
    Row(
        name="drafts behind stages that vLLM's scheduler masks",
        when={
            "staged": YES,
            "method": ("MTP", *HEADS),
            "runner": ("V2",),
            "on_ranks": NO,
            "scheduling": ("", "Async"),
        },
        verdict="FallsBack",
        says=_NOT_ITS_DRAFTS,
        instead="use placement Rank",
        field="guidedDecoding.placement",
    ),
    # On a CPU vLLM has no NGram that is asynchronous.
    Row(
        name="NGram's drafts behind stages that vLLM's scheduler masks",
        when={
            "staged": YES,
            "method": ("NGram",),
            "runner": ("V2",),
            "on_ranks": NO,
            "device": GPUS,
            "scheduling": ("", "Async"),
        },
        verdict="FallsBack",
        says=_NOT_ITS_DRAFTS,
        instead="use placement Rank",
        field="guidedDecoding.placement",
    ),
    Row(
        name="several engines",
        when={"replicated": YES, "method": ("",)},
        verdict="Supported",
        says="each engine has its own scheduler and ranks",
        test="tests/engine/test_parallel.py",
    ),
    Row(
        name="several engines that speculate",
        when={"replicated": YES, "method": ALL, "by_batch": NO, "by_load": NO},
        verdict="NotRun",
        says="each engine speculates by itself",
        field="parallelism.data",
    ),
)
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
_REST: Final = (
    Row(
        name="a GPU",
        when={"device": GPUS},
        verdict="NotRun",
        says="what is supported ran on a CPU, Model Runner V2 by Triton's interpreter; of it an H200 has run "
        "one rank of a small model, without drafts, with DraftModel, NGram, Eagle3 and MTP",
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
        resolves=ASYNC,
    ),
    Row(
        name="LoRA and a draft model",
        when={"lora": YES, "method": ("DraftModel",), "adaptive": NO},
        verdict="Supported",
        says="the draft model proposes for adapters, too",
        test="tests/e2e/test_run_fields.py",
    ),
    Row(
        name="LoRA and other methods",
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
SPREAD_ROWS: Final = (*_PARALLEL, *_REST)
