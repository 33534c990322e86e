"""What a rank knows of one sequence that is guided or has processors."""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from guided_contract.errors import ErrorCode
from guided_contract.records import Decode, EndReason, ProcessorFailure
from guided_contract.wire import Failed, Ticket
from guided_engine.processors.edits import NoTokenError
from guided_engine.processors.failures import log_failure
from guided_engine.processors.registry import ProcessorError
from guided_engine.processors.sequence import Prepared, SequenceProcessors
from guided_engine.ranks.agreement import Progress
from guided_engine.ranks.reasoning import AT_ONCE, Opening, Reasoning
from guided_engine.ranks.step import known_drafts
from guided_engine.ranks.stopwatch import Stopwatch
from guided_engine.ranks.tally import Tally
from guided_grammar.matching import Matcher, SpentError

_log = logging.getLogger("guided_engine")
_T = TypeVar("_T")


@dataclass(slots=True)
class GuidedSequence:
    """One sequence.

    `needed` tokens must be computed before one is sampled: the prompt, after preemption all known tokens.
    Outputs of steps before `since_step` are not its any more: it was preempted meanwhile. The matcher waits
    for `reasoning`. `drafts` are the latest that the runner proposed. `failure` is why it is to end, `fault`
    the record of that where it is for its processors.
    """

    request_id: str
    rank: int
    prompt_length: int
    ticket: Ticket | None
    needed: int
    computed: int
    since_step: int
    matcher: Matcher | None = None
    reasoning: Reasoning | None = None
    processors: SequenceProcessors | None = None
    accepted: list[int] = field(default_factory=list)
    drafts: Sequence[int] = ()
    stop_tokens: frozenset[int] = frozenset()
    max_tokens: int | None = None
    failure: ErrorCode | None = None
    fault: ProcessorFailure | None = None
    is_reported: bool = False
    tally: Tally = field(default_factory=Tally)
    stopwatch: Stopwatch = field(default_factory=Stopwatch)
    progress: Progress = field(default_factory=Progress)

    @property
    def is_given_up(self) -> bool:
        """Return whether nothing constrains it any more.

        A slow one is constrained until that was reported: other ranks may not have found it slow.
        """
        return self.failure is not None and (self.failure != ErrorCode.SEQUENCE_SLOW or self.is_reported)

    def take_drafts(self, scheduled: Sequence[int]) -> int:
        """Settle which drafts this step verifies: the scheduler's where it knows them, else the runner's.

        Returns how many were scheduled, known or not.
        """
        proposed = self.drafts if scheduled and scheduled[0] < 0 else scheduled
        self.drafts = known_drafts(proposed[: len(scheduled)]) if scheduled else ()
        self.tally.count_step(len(self.drafts))
        return len(scheduled)

    def take_sampled(self, tokens: Sequence[int]) -> None:
        """Advance by what its latest step sampled, and count that step's drafts."""
        self.tally.count_sampled(len(tokens))
        self.accept(tokens)

    def accept(self, tokens: Sequence[int]) -> None:
        """Advance by sampled tokens; what goes wrong becomes the sequence's failure."""
        known = len(self.accepted)
        self.accepted.extend(tokens)
        if self.is_given_up or not tokens:
            return
        if self.matcher is not None:
            self._advance_matcher(self.matcher, known, tokens)
        if self.processors is not None:
            self._with_processors(lambda processors: processors.accept(tokens))

    def resync(self, output_tokens: Sequence[int]) -> None:
        """Come to the state of exactly these output tokens, after preemption may have dropped some."""
        known = len(self.accepted)
        wanted = list(output_tokens)
        if self.accepted == wanted[:known]:
            self.accept(wanted[known:])
            return
        kept = next((i for i, (a, b) in enumerate(zip(self.accepted, wanted, strict=False)) if a != b), None)
        if self.failure is None:
            self._restart(min(known, len(wanted)) if kept is None else kept)
        self.accepted = []
        self.accept(wanted)

    def opening(self, tokens: Sequence[int]) -> Opening:
        """Return where the grammar begins among tokens that would come next, and what holds before it."""
        if self.reasoning is None:
            return AT_ONCE
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

    def fail_processors(self, code: ErrorCode, processors: Sequence[str]) -> None:
        """End the sequence for what its processors did, those of these names; the first reason counts."""
        if self.failure is None:
            self.failure = code
            self.fault = ProcessorFailure(rank=self.rank, processors=list(processors), code=code.value)

    def fail_rows(self, code: ErrorCode) -> None:
        """End the sequence for what was found in its rows, after its processors."""
        self.fail_processors(code, [] if self.processors is None else self.processors.names)

    def start_processors(self) -> None:
        """Make its processors anew."""
        self._with_processors(SequenceProcessors.start)

    def prepare_processors(self) -> Prepared | None:
        """Return what its processors change in this step's rows; None: nothing, or one failed."""
        if self.processors is None:
            return None
        ahead = self.drafts[: self.verifiable(len(self.drafts))]
        return self._with_processors(lambda processors: processors.prepare(ahead))

    def verifiable(self, scheduled: int) -> int:
        """Return how many of its scheduled drafts its processors can look at."""
        return min(scheduled, len(self.drafts)) if self.takes_drafts else 0

    @property
    def takes_drafts(self) -> bool:
        """Return whether all of its processors take drafts."""
        return not self.processors or self.processors.support_speculation

    def release(self) -> None:
        """Give back what its processors hold."""
        if self.processors is not None:
            self.processors.release()

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
            takes_drafts=self.takes_drafts,
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
        self.start_processors()

    def _advance_matcher(self, matcher: Matcher, known: int, tokens: Sequence[int]) -> None:
        try:
            if self.reasoning is not None:
                tokens = tokens[self.reasoning.accept(known, tokens) :]
            self.stopwatch.start()
            if not matcher.accept(tokens):
                self.fail(ErrorCode.SEQUENCE_TOKEN_REJECTED)
            if self.stopwatch.is_over(len(tokens)):
                self.fail(ErrorCode.SEQUENCE_SLOW)
        except Exception as error:  # noqa: BLE001 - native code; only this sequence pays
            self.fail(failure_of(error))

    def _with_processors(self, call: Callable[[SequenceProcessors], _T]) -> _T | None:
        if self.processors is None or self.is_given_up:
            return None
        try:
            return call(self.processors)
        except NoTokenError:
            names = ", ".join(self.processors.names)
            _log.warning("guidedmodel: %s leave request %s no token", names, self.request_id)
            self.fail_processors(ErrorCode.SEQUENCE_PROCESSOR_NO_TOKEN, self.processors.names)
        except ProcessorError as error:
            name = ", ".join(error.processors) or "a processor"
            what = f"request {self.request_id} ends at its token {len(self.accepted)}: {name}"
            log_failure(what, error.__cause__ or error)
            self.fail_processors(ErrorCode.SEQUENCE_PROCESSOR_FAILED, error.processors)
        return None


def failure_of(error: Exception) -> ErrorCode:
    """Return how a sequence ends whose matcher raised this."""
    is_spent = isinstance(error, SpentError)
    return ErrorCode.SEQUENCE_SLOW if is_spent else ErrorCode.SEQUENCE_MATCHER_FAILED
