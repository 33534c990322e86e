"""What the process of a rank's matchers knows of one sequence."""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from guided_contract.errors import ErrorCode
from guided_contract.records import Decode, EndReason
from guided_contract.wire import Failed, Ticket
from guided_engine.matchers.agreement import Progress
from guided_engine.matchers.reasoning import AT_ONCE, Opening, Reasoning
from guided_engine.matchers.stopwatch import Stopwatch
from guided_engine.matchers.tally import Tally
from guided_engine.matchers.tracking import Tracked
from guided_grammar.matching import Matcher, SpentError

_log = logging.getLogger("guided_engine")


@dataclass(slots=True, kw_only=True)
class GuidedSequence(Tracked):
    """One sequence that has a matcher, or logits processors on the rank.

    The matcher waits for `reasoning`. `number` is the rank's own of it, which `work` is told before native
    code is called. `takes_drafts`: whether all of its processors do, None without any. `is_reported`: the
    rank knows of its failure. `told_reasoned` is what it knows of the end of its reasoning.
    """

    number: int
    rank: int
    ticket: Ticket | None
    matcher: Matcher | None = None
    reasoning: Reasoning | None = None
    work: Callable[[int], None]
    takes_drafts: bool | None = None
    stop_tokens: frozenset[int] = frozenset()
    max_tokens: int | None = None
    is_reported: bool = False
    told_reasoned: int | None = None
    tally: Tally = field(default_factory=Tally)
    stopwatch: Stopwatch = field(default_factory=Stopwatch)
    progress: Progress = field(default_factory=Progress)

    @property
    def is_given_up(self) -> bool:
        """Return whether nothing constrains it any more.

        A slow one is constrained until that was reported: other ranks may not have found it slow.
        """
        return self.failure is not None and (self.failure != ErrorCode.SEQUENCE_SLOW or self.is_reported)

    def verified(self, scheduled: Sequence[int]) -> int:
        """Settle this step's drafts; return how many were scheduled, known or not."""
        self.take_drafts(scheduled)
        self.tally.count_step(len(self.drafts))
        return len(scheduled)

    def take_sampled(self, tokens: Sequence[int]) -> None:
        """Advance by what its latest step sampled, and count that step's drafts."""
        self.tally.count_sampled(len(tokens))
        self.accept(tokens)

    def opening(self, tokens: Sequence[int]) -> Opening:
        """Return where the grammar begins among tokens that would come next, and what holds before it."""
        if self.reasoning is None:
            return AT_ONCE
        self.work(self.number)
        try:
            return self.reasoning.opening(tokens)
        except Exception:  # noqa: BLE001 - a parser may be the user's code; only this sequence pays
            _log.exception("guidedmodel: the reasoning parser failed for request %s", self.request_id)
            self.fail(ErrorCode.SEQUENCE_MATCHER_FAILED)
            return AT_ONCE

    def report(self, failure: ErrorCode) -> Failed:
        """Return what the engine core and the sidecar are told, once."""
        self.is_reported = True
        key = self.ticket.key if self.ticket is not None else ""
        return Failed(request_id=self.request_id, code=failure.value, key=key)

    def fail(self, code: ErrorCode) -> None:
        """End the sequence for that reason; the first one counts."""
        if self.failure is None:
            self.failure = code

    def verifiable(self, scheduled: int) -> int:
        """Return how many of its scheduled drafts its processors can look at."""
        if self.takes_drafts is None:
            return scheduled
        return min(scheduled, len(self.drafts)) if self.takes_drafts else 0

    @property
    def known_end(self) -> EndReason | None:
        """Return how it ended, as far as those of its tokens show that it may have."""
        if self.matcher is not None and self.matcher.is_terminated():
            return "completed"
        if not self.stop_tokens.isdisjoint(self.accepted[: self.max_tokens]):
            return "stopped"
        has_all = self.max_tokens is not None and len(self.accepted) >= self.max_tokens
        return "length" if has_all else None

    def record(self, ticket: Ticket, waited_ns: int) -> Decode:
        """Return the telemetry record of a guided sequence that ends now; `waited_ns` are the rank's.

        The API server finds stop strings, and aborts the request as if its client had gone.
        """
        tally = self.tally
        return Decode(
            traceparent=ticket.traceparent,
            tracestate=ticket.tracestate,
            rank=self.rank,
            grammar_key=ticket.key,
            backend=ticket.backend,
            start_ns=tally.start_ns,
            end_ns=time.time_ns(),
            steps=tally.steps,
            fills=tally.fills,
            fill_ns=tally.fill_ns,
            fill_max_ns=tally.fill_max_ns,
            exposed_ns=waited_ns - tally.waited_before_ns,
            tokens=len(self.accepted),
            drafts_proposed=tally.drafts_proposed,
            drafts_accepted=tally.drafts_accepted,
            drafts_forbidden=tally.drafts_forbidden,
            takes_drafts=self.takes_drafts is not False,
            end_reason=self.failure or self.known_end or "aborted",
        )

    def _restart(self, kept: int) -> None:
        try:
            if self.matcher is not None:
                self.matcher.reset()
            if self.reasoning is not None:
                self.reasoning.rewind(kept)
        except Exception:  # noqa: BLE001 - native code; only this sequence pays
            self.fail(ErrorCode.SEQUENCE_MATCHER_FAILED)

    def _advance(self, known: int, tokens: Sequence[int]) -> None:
        matcher = self.matcher
        if matcher is None:
            return
        self.work(self.number)
        try:
            if self.reasoning is not None:
                tokens = tokens[self.reasoning.accept(known, tokens) :]
            self.stopwatch.start()
            if not matcher.accept(tokens) and not (len(tokens) > 1 and self._accepts_one_by_one(matcher)):
                self.fail(ErrorCode.SEQUENCE_TOKEN_REJECTED)
            if self.stopwatch.is_over(len(tokens)):
                self.fail(ErrorCode.SEQUENCE_SLOW)
        except Exception as error:  # noqa: BLE001 - native code; only this sequence pays
            self.fail(failure_of(error))

    def _accepts_one_by_one(self, matcher: Matcher) -> bool:
        """Return whether all that it has accepted is allowed one by one.

        What comes behind a text's end is free, but no library takes it together with the end.
        """
        matcher.reset()
        first = 0 if self.reasoning is None else self.reasoning.end or 0
        is_allowed = all(matcher.accept([token]) for token in self.accepted[first:])
        self.stopwatch.start()  # how long all of it took says nothing of the latest
        return is_allowed


def failure_of(error: Exception) -> ErrorCode:
    """Return how a sequence ends whose matcher raised this."""
    is_spent = isinstance(error, SpentError)
    return ErrorCode.SEQUENCE_SLOW if is_spent else ErrorCode.SEQUENCE_MATCHER_FAILED
