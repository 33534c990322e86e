"""Sequences through a rank's steps: which of them sample, and what each has accepted."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from guided_contract.errors import ErrorCode

_PART: Final = 4096  # tokens


@dataclass(slots=True, kw_only=True)
class Tracked(ABC):
    """One sequence.

    Outputs of steps before `since_step` are not its any more: it was preempted meanwhile. `drafts` are the
    latest that the runner proposed. `failure` is why it is to end.
    """

    request_id: str
    prompt_length: int
    since_step: int
    accepted: list[int] = field(default_factory=list)
    drafts: Sequence[int] = ()
    failure: ErrorCode | None = None

    @property
    def is_given_up(self) -> bool:
        """Return whether nothing is asked of it any more."""
        return self.failure is not None

    def accept(self, tokens: Sequence[int]) -> None:
        """Advance by sampled tokens; what goes wrong becomes the sequence's failure."""
        known = len(self.accepted)
        self.accepted.extend(tokens)
        if tokens and not self.is_given_up:
            self._advance(known, tokens)

    def accept_many(self, tokens: Sequence[int]) -> None:
        """Advance by all that was generated so far: in parts, which show that nothing hangs."""
        for first in range(0, len(tokens), _PART):
            self.accept(tokens[first : first + _PART])

    def resync(self, output_tokens: Sequence[int]) -> None:
        """Come to the state of exactly these output tokens, after preemption may have dropped some."""
        known = len(self.accepted)
        wanted = list(output_tokens)
        if self.accepted == wanted[:known]:
            self.accept_many(wanted[known:])
            return
        kept = next((i for i, (a, b) in enumerate(zip(self.accepted, wanted, strict=False)) if a != b), None)
        if self.failure is None:
            self._restart(min(known, len(wanted)) if kept is None else kept)
        self.accepted = []
        self.accept_many(wanted)

    def take_drafts(self, scheduled: Sequence[int]) -> None:
        """Settle which drafts this step verifies: the scheduler's where it knows them, else the runner's."""
        if not scheduled:
            self.drafts = ()
            return
        proposed = self.drafts if scheduled[0] < 0 else scheduled
        known = list(proposed[: len(scheduled)])
        self.drafts = known[: known.index(-1)] if -1 in known else known  # native code must never see one

    def come_back(self, step: int, tokens: Sequence[int]) -> None:
        """Take over all its tokens, prompt included, after preemption."""
        self.since_step, self.drafts = step, ()
        self.resync(tokens[self.prompt_length :])

    @abstractmethod
    def _advance(self, known: int, tokens: Sequence[int]) -> None:
        """Advance by tokens after `known` others."""

    @abstractmethod
    def _restart(self, kept: int) -> None:
        """Go back to the start; the first `kept` tokens will come again as they were."""


_T = TypeVar("_T", bound=Tracked)


class Tracking(Generic[_T]):
    """The sequences of a rank, by request, and those that sample in its step."""

    def __init__(self) -> None:
        self.by_request: dict[str, _T] = {}
        self.sampling: list[_T] = []

    def begin(self, step: int, resumed: Mapping[str, Sequence[int]], sampling: Iterable[str]) -> None:
        """Take over what the scheduler decided, once the step's arrivals are in `by_request`.

        `resumed` are all tokens, prompt included, of those that come back; `sampling` are the requests that
        sample.
        """
        known = self.by_request
        for request_id in filter(known.__contains__, resumed):
            known[request_id].come_back(step, resumed[request_id])
        self.sampling = [known[request_id] for request_id in sampling if request_id in known]

    def learn_drafts(self, request_ids: Iterable[str], drafts: Iterable[Sequence[int]]) -> None:
        """Take each request's drafts (token ids) of the last step; -1 where the runner does not say them."""
        for request_id, tokens in zip(request_ids, drafts, strict=False):
            sequence = self.by_request.get(request_id)
            if sequence is not None and tokens and tokens[0] >= 0:
                sequence.drafts = tokens

    def sampled(
        self, step: int, request_ids: Iterable[str], rows: Iterable[list[int]]
    ) -> Iterator[tuple[_T, list[int]]]:
        """Yield the sequences that a step sampled for, with the tokens (ids) that are still theirs."""
        for request_id, tokens in zip(request_ids, rows, strict=False):
            sequence = self.by_request.get(request_id)
            if sequence is not None and tokens and step >= sequence.since_step:
                yield sequence, tokens
