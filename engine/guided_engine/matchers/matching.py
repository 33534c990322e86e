"""All matchers of one rank, step by step, as the rank tells them; runs in the process beside it."""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from guided_contract.errors import ErrorCode
from guided_contract.records import AnyRecord
from guided_engine.matchers.agreement import Agreement
from guided_engine.matchers.bitmasks import MaskFiller
from guided_engine.matchers.loaded_grammars import LoadedGrammars
from guided_engine.matchers.mask_rows import Part, count, fill_masks, invalid_drafts, part_of
from guided_engine.matchers.memory import LOADS, NOBODY, SharedMemory
from guided_engine.matchers.messages import Answer, Arrive, Ask, Begin, Message, Restore, Sampled, Tokens
from guided_engine.matchers.reasoning import Reasoner, Reasoning
from guided_engine.matchers.sequence import GuidedSequence
from guided_engine.matchers.stopwatch import Stopwatch
from guided_engine.matchers.tally import Tally
from guided_engine.matchers.tracking import Tracking

_log = logging.getLogger("guided_engine")


@dataclass(frozen=True, slots=True)
class RankTraits:
    """What does not change while the engine runs.

    `reasoner` makes a sequence's reasoner from its request's arguments; None where grammars hold at once.
    `compare_every` None: no other rank to agree with. `mask_rows` is how many rows of a bitmask each sequence
    has, used or not; 0: as many as it uses.
    """

    rank: int
    vocab_size: int
    is_async: bool
    reasoner: Callable[[dict[str, Any]], Reasoner] | None = None
    compare_every: int | None = None
    mask_rows: int = 0


class Matching:
    """Takes a rank's messages, in their order; `send` takes records, and never blocks.

    `memory` is shared with the rank.
    """

    def __init__(
        self,
        traits: RankTraits,
        loaded_grammars: LoadedGrammars,
        filler: MaskFiller,
        memory: SharedMemory,
        send: Callable[[AnyRecord], None],
    ) -> None:
        self._traits = traits
        self._loaded_grammars = loaded_grammars
        self._filler = filler
        self.memory = memory
        self._slots = memory.slots
        self._work = memory.work
        self._send = send
        self._stopwatch = Stopwatch()
        every = traits.compare_every
        self._agreement = None if every is None else Agreement(traits.rank, every, send)
        self._tracking: Tracking[GuidedSequence] = Tracking()
        # Of this step, and of the latest answer.
        self._sampling: list[str] = []
        self._drafts: Mapping[str, Sequence[int]] = {}
        self._masked: list[str] | None = None
        self._waited_ns = 0
        self._parts: list[Part] = []  # of the latest answer
        self._row_ns = 0

    def take(self, message: Message) -> Answer | None:
        """Take a message; an Ask is answered."""
        self._stopwatch.mark()
        match message:
            case Ask():
                return self._masks(message)
            case Begin():
                self._begin(message)
            case Sampled(steps=steps):
                self._accept(steps)
            case Restore():
                self._restore(message)
        return None

    def answered(self, slot: int) -> None:
        """Count what was answered, and compare it with the other ranks, while the rank goes on."""
        count(self._parts, self._row_ns)
        if self._agreement is None:
            return
        rows = {part.sequence.request_id: part.row for part in self._parts}
        bitmask = self._slots[slot]
        sampling = (
            (sequence, None if (row := rows.get(sequence.request_id)) is None else bitmask[row])
            for sequence in self._tracking.sampling
            if sequence.failure is None
        )
        self._agreement.compare(sampling)

    def _begin(self, begin: Begin) -> None:
        self._waited_ns = begin.waited_ns
        # What the engine core has read is accepted: a sequence's end counts before it is forgotten. What was
        # sampled after its end does not. If no other one goes on, the core may have read the last step, too.
        late = begin.step - self._traits.is_async
        self._accept(one for one in begin.sampled if one.step < late)
        for request_id in begin.finished:
            sequence = self._tracking.by_request.get(request_id)
            if sequence is not None and (begin.goes_on or sequence.known_end is not None):
                self._forget(request_id)
        self._accept(one for one in begin.sampled if one.step >= late)
        for request_id in begin.finished:
            self._forget(request_id)
        for sequence in self._tracking.sampling:
            sequence.drafts = ()  # they were verified
        self._give_up(begin.given_up)
        for arrive in begin.arrivals:
            self._arrive(arrive)
        if begin.sampling is not None:
            self._sampling = begin.sampling
        if begin.drafts is not None:
            self._drafts = begin.drafts
        self._tracking.begin(begin.step, begin.resumed, self._sampling)

    def _accept(self, steps: Iterable[Tokens]) -> None:
        for step in steps:
            for sequence, tokens in self._tracking.sampled(step.step, step.request_ids, step.rows()):
                sequence.take_sampled(tokens)
        self._work(NOBODY)

    def _masks(self, ask: Ask) -> Answer:
        self._tracking.learn_drafts(ask.request_ids, ask.drafts)
        self._give_up(ask.given_up)
        sampling = self._tracking.sampling
        parts: list[Part] = []
        row = 0
        for sequence in sampling:
            scheduled = sequence.verified(self._drafts.get(sequence.request_id, ()))
            part = part_of(sequence, row, scheduled)
            if part is not None:
                parts.append(part)
                row += self._traits.mask_rows or part.rows
        self._parts, self._row_ns = parts, 0
        if parts:
            self._row_ns = fill_masks(parts, self._filler, self._slots[ask.slot][:row])
        self._work(NOBODY)
        acceptable = [min(part.acceptable, part.most) if part.sequence.drafts else 0 for part in parts]
        ends = [
            sequence.report(sequence.failure)
            for sequence in self._tracking.by_request.values()
            if sequence.failure is not None and not sequence.is_reported
        ]
        invalid = invalid_drafts(sampling, self._drafts, parts)
        masked = [part.sequence.request_id for part in parts]
        is_known, self._masked = masked == self._masked, masked
        reasoned = {}
        for sequence in sampling:
            if sequence.reasoning is not None and (end := sequence.reasoning.end) != sequence.told_reasoned:
                sequence.told_reasoned = end
                if end is not None:
                    reasoned[sequence.request_id] = end
        return Answer(ask.number, None if is_known else masked, row, acceptable, invalid, ends, reasoned)

    def _arrive(self, arrive: Arrive) -> None:
        known = self._tracking.by_request.get(arrive.request_id)
        if known and known.prompt_length == arrive.prompt_length and arrive.known_tokens is not None:
            known.come_back(arrive.since_step, arrive.known_tokens)
            return
        self._tracking.by_request[arrive.request_id] = self._made(arrive)

    def _made(self, arrive: Arrive) -> GuidedSequence:
        sequence = GuidedSequence(
            request_id=arrive.request_id,
            number=arrive.number,
            rank=self._traits.rank,
            prompt_length=arrive.prompt_length,
            ticket=arrive.ticket,
            since_step=arrive.since_step,
            work=self._work,
            takes_drafts=arrive.takes_drafts,
            tally=Tally(waited_before_ns=self._waited_ns),
            stopwatch=self._stopwatch,
            stop_tokens=frozenset(arrive.stop_tokens),
            max_tokens=arrive.max_tokens,
        )
        if arrive.failure:
            sequence.failure, sequence.is_reported = ErrorCode(arrive.failure), True
        elif arrive.is_guided:
            self._add_matcher(sequence, arrive)
        return sequence

    def _add_matcher(self, sequence: GuidedSequence, arrive: Arrive) -> None:
        if arrive.ticket is None:
            # The engine core refuses such a request; it must not run unconstrained if it comes all the same.
            sequence.fail(ErrorCode.REQUEST_NOT_ADMITTED)
            return
        self._work(arrive.number)
        try:
            sequence.matcher = self._loaded_grammars.matcher(arrive.ticket.key, arrive.stop_tokens)
        except Exception as error:  # noqa: BLE001 - native code; only this sequence pays
            _log.warning("guidedmodel: no matcher for request %s: %s", arrive.request_id, error)
            sequence.fail(ErrorCode.SEQUENCE_MATCHER_FAILED)
        if self._traits.reasoner is not None and sequence.matcher is not None:
            make = partial(self._traits.reasoner, arrive.ticket.reasoning_arguments)
            has_ended = arrive.ticket.reasoning_ended
            # A client may name ids that no row of logits has.
            stops = [token for token in arrive.stop_tokens if 0 <= token < self._traits.vocab_size]
            prompt = arrive.prompt_tokens
            sequence.reasoning = Reasoning(make, prompt, sequence.matcher, stops, has_ended=has_ended)
            if arrive.reasoned is not None:
                sequence.reasoning.go_on_from(arrive.reasoned)
                sequence.told_reasoned = arrive.reasoned

    def _restore(self, restore: Restore) -> None:
        for load in restore.loads:
            self._work(LOADS)
            self._loaded_grammars.load(load)
        for arrive, tokens in zip(restore.arrivals, restore.outputs, strict=True):
            sequence = self._tracking.by_request[arrive.request_id] = self._made(arrive)
            sequence.accept_many(tokens)
            sequence.progress.interval = 1 << 62  # no digest any more: its number is not known
        self._work(NOBODY)
        if restore.is_watched:
            self._filler.watch()

    def _give_up(self, codes: Mapping[str, str]) -> None:
        """End sequences as the rank has done already."""
        for request_id, code in codes.items():
            if (sequence := self._tracking.by_request.get(request_id)) is not None:
                sequence.fail(ErrorCode(code))
                sequence.is_reported = True

    def _forget(self, request_id: str) -> None:
        sequence = self._tracking.by_request.pop(request_id, None)
        if sequence is not None and (ticket := sequence.ticket) is not None:
            self._send(sequence.record(ticket, self._waited_ns))
