"""The logits processors of a rank's sequences: their authors' code, which runs in the rank itself."""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from guided_contract.errors import ErrorCode
from guided_contract.names import RESERVED_PREFIX
from guided_contract.records import AnyRecord, ProcessorFailure
from guided_engine.matchers.messages import Tokens
from guided_engine.matchers.stopwatch import Stopwatch
from guided_engine.matchers.tracking import Tracked, Tracking
from guided_engine.processors.edits import NoTokenError
from guided_engine.processors.failures import log_failure
from guided_engine.processors.interface import SequenceInfo
from guided_engine.processors.registry import ProcessorError, Registry
from guided_engine.processors.sequence import Prepared, SequenceProcessors
from guided_engine.ranks.processor_times import StepTimes
from guided_engine.ranks.row_edits import StepEdits, step_edits
from guided_engine.ranks.step import Arrival, Plan, RowFault

_log = logging.getLogger("guided_engine")
_T = TypeVar("_T")


@dataclass(slots=True, kw_only=True)
class ProcessedSequence(Tracked):
    """A sequence that has processors; `fault` is the record of how they ended it."""

    rank: int
    processors: SequenceProcessors
    fault: ProcessorFailure | None = None

    def start(self) -> None:
        """Make its processors anew."""
        self._guarded(SequenceProcessors.start)

    def prepare(self) -> Prepared | None:
        """Return what its processors change in this step's rows; None: nothing, or one failed."""
        ahead = self.drafts if self.processors.support_speculation else ()
        return self._guarded(lambda processors: processors.prepare(ahead))

    def fail(self, code: ErrorCode, processors: Sequence[str] | None = None) -> None:
        """End it for what its processors did, those of these names or any; the first reason counts."""
        if self.failure is None:
            self.failure = code
            names = self.processors.names if processors is None else list(processors)
            self.fault = ProcessorFailure(rank=self.rank, processors=names, code=code.value)

    def _advance(self, _known: int, tokens: Sequence[int]) -> None:
        self._guarded(lambda processors: processors.accept(tokens))

    def _restart(self, _kept: int) -> None:
        self.start()

    def _guarded(self, call: Callable[[SequenceProcessors], _T]) -> _T | None:
        if self.is_given_up:
            return None
        try:
            return call(self.processors)
        except NoTokenError:
            names = ", ".join(self.processors.names)
            _log.warning("guidedmodel: %s leave request %s no token", names, self.request_id)
            self.fail(ErrorCode.SEQUENCE_PROCESSOR_NO_TOKEN)
        except ProcessorError as error:
            name = ", ".join(error.processors) or "a processor"
            what = f"request {self.request_id} ends at its token {len(self.accepted)}: {name}"
            log_failure(what, error.__cause__ or error)
            self.fail(ErrorCode.SEQUENCE_PROCESSOR_FAILED, error.processors)
        return None


class Processed:
    """All sequences of a rank that have processors; `send` takes records, and never blocks."""

    def __init__(
        self, rank: int, vocab_size: int, registry: Registry, send: Callable[[AnyRecord], None]
    ) -> None:
        self._rank = rank
        self._vocab_size = vocab_size
        self._registry = registry
        self._send = send
        self._times = StepTimes(rank, send, Stopwatch())
        self._tracking: Tracking[ProcessedSequence] = Tracking()
        self.learn_drafts = self._tracking.learn_drafts

    def __bool__(self) -> bool:
        """Return whether the model has processors, which any request may have then."""
        return bool(self._registry)

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._tracking.by_request

    def arrive(self, arrival: Arrival, step: int) -> ProcessedSequence | None:
        """Take a request that is new, or comes back; return its sequence, None if it has no processors."""
        known = self._tracking.by_request.get(arrival.request_id)
        if known and known.prompt_length == arrival.prompt_length and arrival.known_tokens is not None:
            known.come_back(step, arrival.known_tokens)
            return known
        sequence = self._made(arrival, step)
        sequence.start()
        if not sequence.processors and sequence.failure is None:
            return None  # nothing is to be asked in each step
        self._tracking.by_request[arrival.request_id] = sequence
        return sequence

    def begin(self, step: int, plan: Plan, sampling: Iterable[str]) -> None:
        """Take over what the scheduler decided, after the step's arrivals; these requests sample."""
        for sequence in self._tracking.sampling:
            sequence.drafts = ()  # they were verified
        self._tracking.begin(step, plan.resumed, sampling)

    def accept(self, sampled: Tokens, faults: Mapping[str, RowFault]) -> None:
        """Accept what a step sampled, less what came from rows that processors spoiled."""
        self._times.begin()  # anew: waiting for a device may take CPU time
        for sequence, tokens in self._tracking.sampled(sampled.step, sampled.request_ids, sampled.rows()):
            fault = faults.get(sequence.request_id)
            if fault is not None and fault.row < len(tokens):
                sequence.fail(fault.code)
            else:
                sequence.accept(tokens)
        self._times.end()

    def edits(self, drafts: Mapping[str, Sequence[int]]) -> StepEdits | None:
        """Return what processors change in this step's logits, None for nothing."""
        self._times.begin()
        prepared = {}
        for sequence in self._tracking.sampling:
            sequence.take_drafts(drafts.get(sequence.request_id, ()))
            if (made := sequence.prepare()) is not None:
                prepared[sequence.request_id] = made
        self._times.end()
        self._times.end_step()
        return step_edits(prepared) if prepared else None

    def stop(self, request_id: str, code: ErrorCode) -> None:
        """Ask nothing more for a sequence that ended for another reason."""
        sequence = self._tracking.by_request.get(request_id)
        if sequence is not None and sequence.failure is None:
            sequence.failure = code

    def give_up(self, edits: StepEdits) -> None:
        """End the sequences of edits that could not be applied, within the handler of what was raised."""
        _log.exception("guidedmodel: logits processors failed on this rank; their sequences are ended")
        for request_id in edits.rows:
            if (sequence := self._tracking.by_request.get(request_id)) is not None:
                sequence.fail(ErrorCode.SEQUENCE_PROCESSOR_FAILED)

    def failed(self) -> dict[str, ErrorCode]:
        """Return which sequences processors have ended, and send a record of each, once."""
        found = {}
        for request_id, sequence in self._tracking.by_request.items():
            if sequence.failure is not None and sequence.fault is not None:
                self._send(sequence.fault)
                sequence.fault = None
                found[request_id] = sequence.failure
        return found

    def forget(self, request_id: str) -> None:
        """Release a sequence that has ended."""
        if (sequence := self._tracking.by_request.pop(request_id, None)) is not None:
            sequence.processors.release()
            if not self._tracking.by_request:
                self._times.tell()

    def close(self) -> None:
        """Close the factories; the rank ends."""
        for sequence in self._tracking.by_request.values():
            sequence.processors.release()
        self._registry.close()

    def _made(self, arrival: Arrival, step: int) -> ProcessedSequence:
        arguments = {k: v for k, v in arrival.arguments.items() if not k.startswith(RESERVED_PREFIX)}
        info = SequenceInfo[Any](
            request_id=arrival.request_id,
            prompt_tokens=tuple(arrival.prompt_tokens),  # the list is the runner's own
            # A client may name ids that no row of logits has.
            stop_tokens=frozenset(t for t in arrival.stop_tokens if 0 <= t < self._vocab_size),
            max_tokens=arrival.max_tokens,
            sampling_params=arrival.sampling_params,
        )
        make = partial(self._registry.create, arguments, info)
        return ProcessedSequence(
            request_id=arrival.request_id,
            rank=self._rank,
            prompt_length=arrival.prompt_length,
            since_step=step,
            processors=SequenceProcessors(make, self._vocab_size, self._times.add),
        )
