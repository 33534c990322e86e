"""How many draft tokens are verified at which load."""

from typing import Final

from guided_contract.combinations.row import ALL, DRAFTS, GPUS, MATRIX, NO, ON_V1, YES, Row

_WARNING: Final = "Dynamic speculative decoding changes the target verification length at runtime."
_RAN: Final = ("NGram", "DraftModel", "Eagle3", "MTP")  # rows of their own say that the others did not


def _scheduled(name: str, fact: str, field: str, instead: str) -> tuple[Row, ...]:
    """Return what holds of vLLM's schedule by batch size, whoever writes it."""
    on_v1 = {fact: YES, "replicated": NO, "runner": ("V1",)}
    return (
        Row(
            name=f"{name} with several engines",
            when={fact: YES, "replicated": YES, "method": ALL},
            verdict="Refused",
            says="vLLM has one number of draft tokens for several engines, each of which would choose",
            instead=instead,
            field=field,
            decided_by=("CEL",),
            words="Dynamic speculative decoding is not supported with data parallelism",
        ),
        Row(
            name=f"{name} on V1",
            when={**on_v1, "device": GPUS, "eager": NO, "method": ("DraftModel", "Eagle3", "MTP", "DFlash")},
            verdict="FallsBack",
            says=f"on Model Runner V1 the graphs are piecewise with {name}",
            instead="use Model Runner V2",
            field=field,
            words=_WARNING,
        ),
        Row(
            name=f"{name} of NGram on V1",
            when={**on_v1, "device": GPUS, "method": ("NGram",)},
            verdict="Refused",
            says=f"Model Runner V1's ngram_gpu ends the engine where {name} changes its number of drafts",
            instead="use Model Runner V2",
            field=field,
            decided_by=("Operator",),
            words=_WARNING,
        ),
    )


_AUTO: Final = {"by_load": YES, "replicated": NO}
LOAD_ROWS: Final = (
    *_scheduled("disableAbove", "by_batch", "speculative.disableAbove", "set parallelism.data to 1"),
    Row(
        name="disableAbove",
        when={"by_batch": YES, "replicated": NO, "runner": ("V2",), "method": _RAN},
        verdict="Supported",
        says="drafts above the batch size are dropped",
        test=f"{MATRIX} V2-tp1-draft-async",
    ),
    Row(
        name="disableAbove on V1 on a CPU",
        when={"by_batch": YES, "replicated": NO, "runner": ("V1",), "device": ("CPU",), "method": _RAN},
        verdict="Supported",
        says="drafts above the batch size are not made; vLLM warns of graphs, which a CPU has none of",
        test="tests/e2e/test_run_fields.py",
        words=_WARNING,
    ),
    *_scheduled(
        "numTokens Auto", "by_load", "speculative.numTokens", "set a number, or parallelism.data to 1"
    ),
    Row(
        name="numTokens Auto",
        when={**_AUTO, "runner": ("V2",), "method": ("DraftModel", "Eagle3"), "adaptive": NO},
        verdict="Supported",
        says="0, 1 or maxTokens drafts, by what steps take and drafts bring; each has graphs of its own",
        test="tests/engine/test_drafts_by_load.py",
    ),
    Row(
        name="numTokens Auto of other methods",
        when={**_AUTO, "runner": ("V2",), "method": ("NGram", "MTP", "DSpark", "DFlash"), "adaptive": NO},
        verdict="NotRun",
        says="engines chose by load with DraftModel and Eagle3 alone",
        field="speculative.numTokens",
    ),
    Row(
        name="numTokens Auto on V1 on a CPU",
        when={**_AUTO, "runner": ("V1",), "device": ("CPU",), "method": ON_V1},
        verdict="NotRun",
        says="0, 1 or maxTokens drafts, of which Model Runner V1 has made none here",
        field="speculative.numTokens",
        words=_WARNING,
    ),
    Row(
        name="numTokens Auto and disableAbove",
        when={"by_load": YES, "by_batch": YES, "method": ALL},
        verdict="Refused",
        says="Auto finds by itself above which batch size drafts do not pay",
        instead="set a number, or leave disableAbove out",
        field="speculative.disableAbove",
        decided_by=("CEL",),
    ),
    Row(
        name="numTokens Auto and adaptive verification",
        when={"by_load": YES, "adaptive": YES, "method": DRAFTS, "device": GPUS},
        verdict="Refused",
        says="Auto and Adaptive would both choose how many drafts are verified, each by the other's choice",
        instead="set a number, or use Fixed, or Block on Model Runner V2",
        field="speculative.numTokens",
        decided_by=("CEL",),
    ),
)
