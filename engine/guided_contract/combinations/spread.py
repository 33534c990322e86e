"""How an engine is spread over ranks."""

from typing import Any, Final

from guided_contract.combinations.row import ALL, GPUS, HEADS, MATRIX, NO, YES, Row

_SYNC_STAGES: Final[dict[str, Any]] = {
    "instead": "use Model Runner V2",
    "field": "parallelism.pipeline",
    "words": "Async scheduling is disabled because the V1 model runner does not support it with pipeline "
    "parallelism.",
    "is_async": False,
}
SPREAD_ROWS: Final = (
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
        name="tensor parallelism with Eagle3 or NGram on V1",
        when={"split": YES, "method": ("Eagle3", "NGram"), "runner": ("V1",)},
        verdict="NotRun",
        says="we ran these with several ranks on Model Runner V2 alone",
        field="parallelism.tensor",
    ),
    Row(
        name="tensor parallelism with NGram",
        when={"split": YES, "method": ("NGram",), "runner": ("V2",)},
        verdict="Supported",
        says="each rank finds the same repetitions; compared in requests with logits processors alone",
        test=f"{MATRIX} V2-tp2-ngram_gpu-async",
    ),
    Row(
        name="tensor parallelism with MTP, DSpark or DFlash",
        when={"split": YES, "method": ("MTP", "DSpark", "DFlash")},
        verdict="NotRun",
        says="with several ranks we ran DraftModel, Eagle3 and NGram alone",
        field="parallelism.tensor",
    ),
    Row(
        name="pipeline stages",
        when={"staged": YES, "method": ("", "NGram"), "runner": ("V2",), "device": GPUS},
        verdict="Supported",
        says="the last stage samples, masks and proposes",
        test=f"{MATRIX} V2-tp1pp2-ngram_gpu-async",
        is_async=True,
    ),
    Row(
        name="pipeline stages on V1",
        when={"staged": YES, "method": ("",), "runner": ("V1",), "scheduling": ("",)},
        verdict="FallsBack",
        says="Model Runner V1 schedules pipeline stages synchronously",
        test=f"{MATRIX} V1-tp1pp2-none-sync",
        **_SYNC_STAGES,
    ),
    # On a CPU vLLM says of NGram that it is ngram, and of the rest we say Off: it does not come to stages.
    Row(
        name="pipeline stages on V1 with speculation",
        when={
            "staged": YES,
            "method": ("Eagle3", "MTP", "DFlash"),
            "runner": ("V1",),
            "scheduling": ("",),
            "device": GPUS,
        },
        verdict="FallsBack",
        says="Model Runner V1 schedules pipeline stages synchronously, with drafts from hidden states, too",
        **_SYNC_STAGES,
    ),
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
        says="Model Runner V1 schedules pipeline stages synchronously, also with ngram_gpu",
        **_SYNC_STAGES,
    ),
    Row(
        name="speculation behind stages on V1",
        when={"staged": YES, "method": ("NGram", "Eagle3", "MTP", "DFlash"), "runner": ("V1",)},
        verdict="NotRun",
        says="on Model Runner V1 we ran stages without speculation alone",
        field="speculative.method",
        is_async=False,
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
        is_async=True,
    ),
    Row(
        name="DSpark and DFlash behind stages",
        when={"staged": YES, "method": ("DSpark", "DFlash"), "runner": ("V2",)},
        verdict="NotRun",
        says="if the model passes its hidden states on, else vLLM refuses it at start (RefusedAtStart)",
        field="speculative.method",
        is_async=True,
    ),
    Row(
        name="MTP behind stages",
        when={"staged": YES, "method": ("MTP",), "runner": ("V2",)},
        verdict="Supported",
        says="the model's own layers run in the last stage; MiMo's, and the tests' own",
        test=f"{MATRIX} V2-tp1pp2-mtp-async",
        is_async=True,
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
        says="behind pipeline stages vLLM's scheduler masks without the drafts, so guided requests have few "
        "accepted",
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
        says="behind pipeline stages vLLM's scheduler masks without NGram's drafts, so guided requests have "
        "few accepted",
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
