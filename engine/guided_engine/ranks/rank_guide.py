"""Guided decoding on one rank: every sequence's matcher and processors, step by step.

An adapter (compat.runner) calls, per step: `begin` before the forward pass; `settle`, `learn_drafts`, `masks`
and `edits` while it runs; `sampled` and `ends` after sampling. All ranks do the same from the same inputs, so
nothing is shared between them.
"""

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from guided_contract.errors import ErrorCode
from guided_contract.records import AnyRecord
from guided_contract.wire import Failed
from guided_engine.processors.registry import Registry
from guided_engine.ranks.agreement import Agreement
from guided_engine.ranks.arrivals import Arrivals, RankTraits
from guided_engine.ranks.bitmasks import BitmaskBuffer
from guided_engine.ranks.loaded_grammars import LoadedGrammars
from guided_engine.ranks.mask_rows import Part, invalid_drafts, masks_of, part_of
from guided_engine.ranks.processor_times import StepTimes
from guided_engine.ranks.row_edits import StepEdits, step_edits
from guided_engine.ranks.sequence import GuidedSequence
from guided_engine.ranks.step import Arrival, Masks, Plan, ReadFaults, ReadSampled
from guided_engine.ranks.stopwatch import Stopwatch

_log = logging.getLogger("guided_engine")


class RankGuide:
    """All sequences of this rank that are guided or have processors; `send` takes records, and never blocks.

    Attributes
    ----------
    invalid_drafts
        By guided request, how many of this step's scheduled drafts its grammar forbids, or nobody proposed:
        what vLLM does not count as proposed where its scheduler has the grammar.
    """

    def __init__(
        self,
        traits: RankTraits,
        loaded_grammars: LoadedGrammars,
        registry: Registry,
        bitmasks: BitmaskBuffer,
        send: Callable[[AnyRecord], None],
    ) -> None:
        self._traits = traits
        self._registry = registry
        self._bitmasks = bitmasks
        self.waits = bitmasks.waits
        self._stopwatch = Stopwatch()
        self._times = StepTimes(traits.rank, send, self._stopwatch)
        self._arrivals = Arrivals(traits, loaded_grammars, registry, self.waits, self._stopwatch, self._times)
        self._send = send
        every = traits.compare_every
        self._agreement = None if every is None else Agreement(traits.rank, every, send)
        self._masked: dict[str, Any] = {}  # request -> its first row of this step's bitmask
        self._sequences: dict[str, GuidedSequence] = {}
        self._sampling: list[GuidedSequence] = []
        self._drafts: Mapping[str, Sequence[int]] = {}
        self.invalid_drafts: dict[str, int] = {}
        self._pending: list[tuple[int, ReadSampled, ReadFaults]] = []
        self._step = 0

    @property
    def is_empty(self) -> bool:
        """Return whether no sequence here is ours."""
        return not self._sequences

    @property
    def is_sampling(self) -> bool:
        """Return whether a sequence of ours samples in this step."""
        return bool(self._sampling)

    @property
    def has_factories(self) -> bool:
        """Return whether the model has processors: each request that arrives is to be an Arrival then."""
        return bool(self._registry)

    @property
    def scheduled_drafts(self) -> Mapping[str, Sequence[int]]:
        """Return this step's drafts by request; -1 where the scheduler does not know one."""
        return self._drafts

    def begin(self, plan: Plan) -> None:
        """Take over what the scheduler decided for this step."""
        self._step += 1
        self._stopwatch.mark()
        self.leave_step()
        self._drafts = plan.drafts
        if plan.finished or not self._traits.is_async:
            # What the engine core has read is on the host: count a sequence's end before it is forgotten.
            self.settle(before=self._step - self._traits.is_async)
        for request_id in plan.finished:
            self._forget(request_id, is_idle=not plan.computed)
        for arrival in plan.arrivals:
            self._arrive(arrival)
        for request_id in filter(self._sequences.__contains__, plan.resumed):
            self._resume(self._sequences[request_id], plan.resumed[request_id])
        for request_id, computed in plan.computed:
            if (sequence := self._sequences.get(request_id)) is not None:
                sequence.computed = computed
        self._sampling = [
            sequence
            for request_id, count in plan.scheduled.items()
            if (sequence := self._sequences.get(request_id)) is not None
            and sequence.computed + count >= sequence.needed
        ]

    def skip_step(self) -> None:
        """Take note of a step in which nothing here is ours."""
        self.leave_step()
        self._step += 1
        self._pending = []

    def leave_step(self) -> None:
        """Forget which sequences sample, and their drafts: none, until the next step is taken over."""
        self._sampling, self._drafts, self.invalid_drafts = [], {}, {}

    def settle(self, before: float = math.inf) -> None:
        """Accept what earlier steps sampled, those `before` one; waits for their copies to the host alone."""
        pending = [one for one in self._pending if one[0] < before]
        del self._pending[: len(pending)]
        for step, read, read_faults in pending:
            sampled = list(read())  # it waits; until then nothing is known of faults
            faults = read_faults()
            self._times.begin()  # anew: waiting for a device may take CPU time
            for request_id, tokens in sampled:
                sequence = self._sequences.get(request_id)
                if sequence is None or step < sequence.since_step or not tokens:
                    continue
                fault = faults.get(request_id)
                if fault is not None and fault.row < len(tokens):
                    sequence.fail_rows(fault.code)
                    continue
                sequence.take_sampled(tokens)
            self._times.end()

    def learn_drafts(self, request_ids: Sequence[str], drafts: Sequence[Sequence[int]]) -> None:
        """Take each request's drafts (token ids) of the last step; -1 where the runner does not say them."""
        for request_id, tokens in zip(request_ids, drafts, strict=False):
            sequence = self._sequences.get(request_id)
            if sequence is not None and tokens and tokens[0] >= 0:
                sequence.drafts = tokens

    def masks(self) -> Masks | None:
        """Settle what earlier steps sampled; return this step's masks, None if nothing is to be masked."""
        self.settle()
        parts: list[Part] = []
        row = 0
        for sequence in self._sampling:
            scheduled = sequence.take_drafts(self._drafts.get(sequence.request_id, ()))
            part = part_of(sequence, row, scheduled)
            if part is not None:
                parts.append(part)
                row += self._traits.mask_rows or part.rows
        masks = masks_of(parts, self._bitmasks, row) if parts else None
        self.invalid_drafts = invalid_drafts(self._sampling, self._drafts, parts)
        self._masked = {}
        if self._agreement is not None and masks is not None:
            self._masked = {part.sequence.request_id: masks.bitmask[part.row] for part in parts}
        return masks

    def handed_over(self, wait: Callable[[], None]) -> None:
        """Take note that this step's masks are on their way to the device; `wait` returns once they are."""
        self._bitmasks.handed_over(wait)

    def edits(self) -> StepEdits | None:
        """Return what processors change in this step's logits, None for nothing; after `masks`."""
        self._times.begin()
        prepared = {
            sequence.request_id: made
            for sequence in self._sampling
            if (made := sequence.prepare_processors()) is not None
        }
        self._times.end()
        self._times.end_step()
        return step_edits(prepared) if prepared else None

    def has_processors(self, request_id: str) -> bool:
        """Return whether a request that has arrived has processors."""
        sequence = self._sequences.get(request_id)
        return sequence is not None and bool(sequence.processors)

    def give_up(self, edits: StepEdits) -> None:
        """End the sequences of edits that could not be applied, within the handler of what was raised."""
        _log.exception("guidedmodel: logits processors failed on this rank; their sequences are ended")
        for request_id in edits.rows:
            if (sequence := self._sequences.get(request_id)) is not None:
                sequence.fail_rows(ErrorCode.SEQUENCE_PROCESSOR_FAILED)

    def sampled(self, read: ReadSampled, faults: ReadFaults = dict) -> None:
        """Remember what this step sampled, and what went wrong in it, to be read when it is needed."""
        self._pending.append((self._step, read, faults))
        if self._agreement is not None:
            # After sampling was launched: a GPU works meanwhile. The rows are valid until the next fill.
            sampling = ((s, self._masked.get(s.request_id)) for s in self._sampling if s.failure is None)
            self._agreement.compare(sampling)
        for sequence in self._sampling:
            sequence.drafts = ()

    def ends(self) -> list[Failed]:
        """Return the sequences that are to end and have not been reported yet."""
        ends = []
        for sequence in self._sequences.values():
            if sequence.failure is not None and not sequence.is_reported:
                self._tell_failure(sequence)
                ends.append(sequence.report(sequence.failure))
        return ends

    def fail_all(self) -> None:
        """End every sequence here, after a fault that cannot be told apart."""
        for sequence in self._sequences.values():
            sequence.fail(ErrorCode.SEQUENCE_MATCHER_FAILED)

    def close(self) -> None:
        """Close the factories of processors; the rank ends."""
        for sequence in self._sequences.values():
            sequence.release()
        self._registry.close()

    def _arrive(self, arrival: Arrival) -> None:
        known = self._sequences.get(arrival.request_id)
        if known and known.prompt_length == arrival.prompt_length and arrival.known_tokens is not None:
            known.computed = arrival.computed
            self._resume(known, arrival.known_tokens)
            return
        sequence = self._arrivals.start(arrival, self._step)
        if sequence.matcher is not None or sequence.processors or sequence.failure is not None:
            self._sequences[arrival.request_id] = sequence

    def _resume(self, sequence: GuidedSequence, tokens: Sequence[int]) -> None:
        sequence.since_step = self._step
        sequence.needed = len(tokens)
        sequence.drafts = ()
        sequence.resync(tokens[sequence.prompt_length :])

    def _forget(self, request_id: str, *, is_idle: bool) -> None:
        if (sequence := self._sequences.get(request_id)) is None:
            return
        # `is_idle`, no other one goes on: the engine core has read its last tokens, or dropped them.
        if (is_idle and sequence.known_end is None) or sequence.processors is not None:
            self.settle()
        del self._sequences[request_id]
        self._tell_failure(sequence)
        if not self._sequences:
            self._times.tell()
        if (ticket := sequence.ticket) is not None:
            self._send(sequence.record(ticket, self.waits.total_ns))
        sequence.release()

    def _tell_failure(self, sequence: GuidedSequence) -> None:
        """Send the record of a sequence that ends for its processors, once."""
        if sequence.fault is not None and not sequence.is_reported:
            self._send(sequence.fault)
