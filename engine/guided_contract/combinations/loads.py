"""How many draft tokens are verified at which load."""

from typing import Final

from guided_contract.combinations.row import (
    ALL,
    DRAFTS,
    GPUS,
    NO,
    ON_V1,
    YES,
    Resolves,
    Row,
)


def _scheduled(name: str, fact: str, field: str, instead: str) -> tuple[Row, Row]:
    """Return what holds of vLLM's schedule by batch size, whoever writes it."""
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
            resolves=Resolves(by_batch=False),
        ),
        Row(
            name=f"{name} on V1",
            when={
                fact: YES,
                "replicated": NO,
                "runner": ("V1",),
                "device": GPUS,
                "eager": NO,
                "method": ON_V1,
            },
            verdict="FallsBack",
            says="on Model Runner V1 the graphs are piecewise",
            instead="use Model Runner V2",
            field=field,
            words="Dynamic speculative decoding changes the target verification length at runtime.",
            resolves=Resolves(runner="V1", by_batch=True),
        ),
    )


LOAD_ROWS: Final = (
    *_scheduled("disableAbove", "by_batch", "speculative.disableAbove", "set parallelism.data to 1"),
    Row(
        name="disableAbove",
        when={"by_batch": YES, "replicated": NO, "runner": ("V2",), "method": ALL},
        verdict="NotRun",
        says="drafts above the batch size are dropped",
        field="speculative.disableAbove",
        resolves=Resolves(by_batch=True),
    ),
    *_scheduled(
        "numTokens Auto", "by_load", "speculative.numTokens", "set a number, or parallelism.data to 1"
    ),
    Row(
        name="numTokens Auto",
        when={"by_load": YES, "replicated": NO, "runner": ("V2",), "method": ALL, "adaptive": NO},
        verdict="NotRun",
        says="0, 1 or maxTokens drafts, by what steps take and drafts bring; each has graphs of its own",
        field="speculative.numTokens",
        resolves=Resolves(by_batch=True),
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
