"""Facts of a configuration, and rows that say what happens when they hold."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Literal, get_args

import msgspec

from guided_contract.compatibility import SUPPORTED_VLLM, minor_of

Method = Literal["", "NGram", "DraftModel", "Eagle3", "MTP", "DSpark", "DFlash"]
Refusal = Literal["operator refuses", "plugin refuses"]
Fallback = Literal["falls back", "falls back to sync", "falls back to few drafts"]
Happens = Refusal | Fallback
REFUSALS: Final[tuple[Refusal, ...]] = get_args(Refusal)
FALLBACKS: Final[tuple[Fallback, ...]] = get_args(Fallback)

# The resource's word for a way to speculate, and vLLM's.
METHODS: Final[Mapping[str, str]] = {
    "NGram": "ngram_gpu",
    "DraftModel": "draft_model",
    "Eagle3": "eagle3",
    "MTP": "mtp",
    "DSpark": "dspark",
    "DFlash": "dflash",
}
NGRAM_ON_CPU: Final = "ngram"  # the same way, as vLLM has it on a CPU: in sync alone
_MINORS: Final = tuple(map(minor_of, SUPPORTED_VLLM))
_GPUS: Final = ("CUDA", "Other")
_DRAFTS: Final = ("DraftModel", "Eagle3", "MTP", "DSpark", "DFlash")


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of one engine. "" and None: not known, and no row that asks for it holds.

    A method of "" is no speculation, a scheduling of "" whichever vLLM takes.
    """

    minor: str = ""  # of vLLM
    method: Method | None = ""
    device: Literal["", "CUDA", "CPU", "Other"] = ""
    runner: Literal["", "V1", "V2"] = ""
    scheduling: Literal["", "Async", "Sync"] = ""
    staged: bool | None = False
    replicated: bool | None = False
    split: bool | None = False
    on_ranks: bool | None = True
    processors: bool | None = False
    dense: bool | None = None
    undrafted: bool | None = None
    foreign: bool | None = None
    lora: bool | None = False
    sharded: bool | None = False
    unshardable: bool | None = None
    eager: bool | None = False
    dbo: bool | None = False
    by_batch: bool | None = False
    by_load: bool | None = False
    crowded: bool | None = None
    fast_prefill: bool | None = False
    overactive: bool | None = False
    short_step: bool | None = False
    probabilistic: bool | None = False
    block: bool | None = False
    adaptive: bool | None = False


# What a row's words ask for: a fact, and the values of it that will do.
_TRUE: Final[Mapping[str, str]] = {
    "pipeline stages": "staged",
    "several engines": "replicated",
    "tensor parallelism": "split",
    "logits processors": "processors",
    "a DenseFactory": "dense",
    "a processor without `supports_speculation`": "undrafted",
    "a class of vLLM's V1 interface": "foreign",
    "LoRA": "lora",
    "batch-sharded sampling": "sharded",
    "fewer sequences than ranks, or `--max-logprobs=-1`": "unshardable",
    "no full CUDA graphs": "eager",
    "dual batch overlap": "dbo",
    "`disableAbove`": "by_batch",
    "`numTokens: Auto`": "by_load",
    "more drafts than a step has room for": "crowded",
    "fast prefill": "fast_prefill",
    "more active sequences than places": "overactive",
    "fewer tokens a step than places": "short_step",
    "probabilistic drafts": "probabilistic",
    "verification Block": "block",
    "verification Adaptive": "adaptive",
}
_FALSE: Final[Mapping[str, str]] = {
    "one stage": "staged",
    "one engine": "replicated",
    "one rank": "split",
    "placement Scheduler": "on_ranks",
    "full CUDA graphs": "eager",
    "verification not Adaptive": "adaptive",
}
_VALUES: Final[Mapping[str, tuple[str, tuple[Any, ...]]]] = {
    **{words: (fact, (True,)) for words, fact in _TRUE.items()},
    **{words: (fact, (False,)) for words, fact in _FALSE.items()},
    **{f"vLLM {minor}": ("minor", (minor,)) for minor in _MINORS},
    # An engine whose vLLM is not known counts as an older one.
    **{f"vLLM before {minor}": ("minor", ("", *_MINORS[:at])) for at, minor in enumerate(_MINORS)},
    **{f"vLLM {minor} or later": ("minor", _MINORS[at:]) for at, minor in enumerate(_MINORS)},
    **{method: ("method", (method,)) for method in METHODS},
    "no speculation": ("method", ("",)),
    "speculation": ("method", ("NGram", *_DRAFTS)),
    "a drafting model": ("method", _DRAFTS),
    "on a GPU": ("device", _GPUS),
    "on a CPU": ("device", ("CPU",)),
    "V1": ("runner", ("V1",)),
    "V2": ("runner", ("V2",)),
    "scheduling Auto": ("scheduling", ("",)),
    "scheduling Async": ("scheduling", ("Async",)),
    "scheduling Sync": ("scheduling", ("Sync",)),
}


def asked(where: str) -> dict[str, tuple[Any, ...]]:
    """Return by fact the values that a row asks for: all of its parts by "; ", of each any by " or ".

    Raises
    ------
    KeyError
        There are no such words.
    """
    found: dict[str, tuple[Any, ...]] = {}
    for part in where.split("; "):
        for words in [part] if part in _VALUES else part.split(" or "):
            fact, values = _VALUES[words]
            found[fact] = (*found.get(fact, ()), *values)
    return found


@dataclass(frozen=True)
class Row:
    """A rule: what happens to an engine of which all these facts hold.

    Parameters
    ----------
    where
        What must hold, in words, which name the row.
    happens
        Who refuses it first, or how it falls back.
    field
        The field of the spec to blame.
    message
        What is said of it: what, why, and what to set instead.
    words
        vLLM's own where it says why it falls back to synchronous scheduling.
    """

    where: str
    happens: Happens
    field: str
    message: str
    words: str = ""

    @cached_property
    def when(self) -> Mapping[str, tuple[Any, ...]]:
        """Values by fact, any of which will do."""
        return asked(self.where)

    def holds(self, facts: Facts) -> bool:
        """Return whether all facts that it asks for are known and as it asks."""
        return all(getattr(facts, name) in values for name, values in self.when.items())

    def told(self, facts: Facts) -> str:
        """Return the message, and what to say of a vLLM that nobody has stated, where a later one differs."""
        if facts.minor or "minor" not in self.when:
            return self.message
        later = _MINORS[len(self.when["minor"]) - 1]  # "" is one of those before
        return f"{self.message}, or set engine.version if the image has vLLM {later} or later"
