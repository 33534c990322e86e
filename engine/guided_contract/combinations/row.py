"""Facts of a configuration, and rows that say what holds when they do."""

from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec

Method = Literal["", "NGram", "DraftModel", "Eagle3", "MTP", "DSpark", "DFlash"]
Verdict = Literal["Supported", "NotRun", "FallsBack", "Refused"]
Decider = Literal["CEL", "Operator", "Plugin", "vLLM"]

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
VERDICTS: Final[Mapping[Verdict, str]] = {
    "Supported": "supported",
    "NotRun": "supported by vLLM, not run by us",
    "FallsBack": "falls back",
    "Refused": "refused",
}


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of one engine. "" and None: not known, and no row that asks for it holds.

    Parameters
    ----------
    method
        How it speculates; "": not at all.
    runner
        vLLM's model runner.
    scheduling
        Which is asked for; "": whichever vLLM takes.
    staged, replicated, split
        Pipeline, data and tensor parallelism above 1.
    on_ranks
        Masks are made on the ranks, not in vLLM's scheduler.
    processors, dense, undrafted, foreign
        Logits processors that the resource names: any; one that works on all logits; one that takes no
        drafts; one of vLLM's V1 interface with a state of its own.
    dbo
        A step's batch runs as several that overlap, which vLLM calls microbatches.
    by_batch
        No drafts above a batch size.
    by_load
        The engine core chooses the number of draft tokens.
    crowded
        The tokens that a full batch verifies, maxNumSeqs times (numTokens + 1), are more than a step has
        room for.
    eager, piecewise
        An argument leaves full CUDA graphs out; it asks for piecewise ones.
    context_parallel
        A sequence's cache is spread over ranks.
    high_throughput
        Batches overlap by --enable-dbo, with DeepEP's high-throughput kernels between ranks.
    unshardable
        There are fewer sequences than ranks, or requests may ask for any number of log probabilities.
    fast_prefill
        Layers that share a cache are left out of prompts.
    overactive
        More sequences may run than there are places for.
    short_step
        A step has fewer tokens than there are places for sequences.
    """

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
    multimodal: bool | None = None
    hybrid: bool | None = None
    reasoning_plugin: bool | None = False
    sharded: bool | None = False
    eager: bool | None = False
    piecewise: bool | None = False
    context_parallel: bool | None = False
    high_throughput: bool | None = False
    dbo: bool | None = False
    by_batch: bool | None = False
    by_load: bool | None = False
    crowded: bool | None = None
    unshardable: bool | None = None
    fast_prefill: bool | None = False
    overactive: bool | None = False
    short_step: bool | None = False
    probabilistic: bool | None = False
    block: bool | None = False
    adaptive: bool | None = False


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A rule: what holds for an engine of which all these facts hold.

    Parameters
    ----------
    when
        Values by fact, any of which will do.
    says
        What it is about, and why it is so.
    instead
        What to set instead; of rows that are not simply supported.
    field
        The field of the spec to blame; "": none, the model or an installed package is.
    decided_by
        Who says it. CEL: the API server, and Python for it; Operator: before a pod starts; Plugin: on a rank
        at its start; vLLM: at its start.
    test
        What ran it; "" where nothing has.
    words
        vLLM's own, a part of its error or warning; "" where it says nothing.
    is_async
        Whether vLLM schedules asynchronously where it takes it, and is not told to do without; None: another
        row says.
    """

    name: str
    when: Mapping[str, tuple[Any, ...]]
    verdict: Verdict
    says: str
    instead: str = ""
    field: str = ""
    decided_by: tuple[Decider, ...] = ("vLLM",)
    test: str = ""
    words: str = ""
    is_async: bool | None = None

    def holds(self, facts: Facts) -> bool:
        """Return whether all facts that it asks for are known and as it asks."""
        return all(getattr(facts, name) in values for name, values in self.when.items())

    @property
    def message(self) -> str:
        """What is said of it: what, why, and what to set instead."""
        return f"{self.says}: {self.instead}" if self.instead else self.says


MATRIX: Final = "tests/engine/test_matrix.py"
HEADS: Final = ("Eagle3", "DSpark", "DFlash")  # which read the model's hidden states
DRAFTS: Final = ("DraftModel", "Eagle3", "MTP", "DSpark", "DFlash")
ALL: Final = ("NGram", *DRAFTS)
ON_V1: Final = ("NGram", "DraftModel", "Eagle3", "MTP", "DFlash")  # those that Model Runner V1 has
YES: Final = (True,)
NO: Final = (False,)
GPUS: Final = ("CUDA", "Other")
