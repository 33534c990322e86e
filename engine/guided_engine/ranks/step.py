"""What a model runner's step means to guided decoding, without vLLM's types: made by a runner's adapter."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from guided_contract.errors import ErrorCode
from guided_contract.wire import Ticket


class SampledTokens(NamedTuple):
    """What a step sampled: of each request the first `counts` of its row's tokens (ids)."""

    request_ids: Sequence[str]
    tokens: npt.NDArray[np.int64]  # [requests, most]
    counts: npt.NDArray[np.int64]  # [requests]

    @classmethod
    def of(cls, request_ids: Sequence[str], rows: Sequence[Sequence[int]]) -> "SampledTokens":
        """Return them from lists."""
        counts = np.fromiter(map(len, rows), np.int64, len(rows))
        tokens = np.zeros((len(rows), max(counts, default=0)), np.int64)
        for row, some in zip(tokens, rows, strict=True):
            row[: len(some)] = some
        return cls(request_ids, tokens, counts)

    def counts_without(self, faults: Mapping[str, "RowFault"]) -> npt.NDArray[np.int64]:
        """Return the counts, 0 where a token is from a row that processors spoiled."""
        counts = self.counts.copy()
        for index, name in enumerate(self.request_ids if faults else ()):
            if (fault := faults.get(name)) is not None and fault.row < counts[index]:
                counts[index] = 0
        return counts


class ReadSampled(Protocol):
    """What a step sampled, on its way to the host."""

    def is_here(self) -> bool:
        """Return whether reading it waits for nothing."""

    def read(self) -> SampledTokens:
        """Return it, waiting for that step's copy to the host alone."""


class RowFault(NamedTuple):
    """A request's first row of a step that its processors spoiled, and its end if a token is from there."""

    row: int
    code: ErrorCode


# Once that has waited, returns which of the step's requests have such a row.
ReadFaults = Callable[[], Mapping[str, RowFault]]


@dataclass(frozen=True, slots=True)
class Arrival:
    """A request that is new to the runner, or comes back to it after preemption (Model Runner V2).

    `prompt_tokens` are token ids, empty for prompt embeddings; `prompt_length` counts them in any case.
    `known_tokens` are prompt and output so far, None where the runner does not say (Model Runner V1).
    `computed` is the number of tokens whose KV cache is computed before this step. `stop_tokens` are the
    request's end of sequence and its own stop tokens. `max_tokens` is how many tokens it may generate, no
    more than the context has room for (vLLM's API server sees to that).
    `sampling_params` are vLLM's own, for what users have from there.
    """

    request_id: str
    prompt_tokens: Sequence[int]
    prompt_length: int
    known_tokens: Sequence[int] | None
    computed: int
    is_guided: bool
    ticket: Ticket | None
    stop_tokens: Sequence[int]
    arguments: Mapping[str, Any]
    max_tokens: int | None = None
    sampling_params: Any = None


@dataclass(frozen=True, slots=True)
class Plan:
    """One step, as scheduled.

    `finished` are requests that have ended.
    `scheduled` is the number of tokens of each request in this step, drafts included. `drafts` are token ids,
    -1 where the scheduler does not know a draft. `is_whole`: the runner tells no drafts besides.
    """

    finished: Collection[str]
    arrivals: Sequence[Arrival]
    resumed: Mapping[str, Sequence[int]]  # request -> all its tokens (Model Runner V1)
    computed: Sequence[tuple[str, int]]  # of requests that the runner knows, before this step
    scheduled: Mapping[str, int]
    drafts: Mapping[str, Sequence[int]]
    is_whole: bool = False


@dataclass(frozen=True, slots=True)
class Masks:
    """What a step's logits are masked with.

    `bitmask` is [rows, ceil(vocabulary / 32)] int32: for each request in `request_ids` one row per scheduled
    draft and one more, and what RankTraits.mask_rows has beyond. `acceptable[i]` is how many leading drafts
    of `request_ids[i]` were constrained.
    """

    request_ids: list[str]
    bitmask: Any
    acceptable: list[int] = field(default_factory=list)
