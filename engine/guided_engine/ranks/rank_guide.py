"""Guided decoding on one rank, step by step: what the process of its matchers is told, and says.

An adapter (compat.runner) calls, per step: `begin` before the forward pass; `settle`, `learn_drafts`, `ask`,
`edits` and `masks` while it runs; `sampled` and `ends` after sampling. All ranks do the same from the same inputs, so
nothing is shared between them. Nothing here is done for each guided sequence of a steady batch.
"""

import logging
import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from guided_contract.errors import ErrorCode
from guided_contract.records import AnyRecord
from guided_contract.wire import Failed
from guided_engine.matchers.beside import Matchers, MatchersLostError
from guided_engine.matchers.matching import RankTraits
from guided_engine.matchers.messages import Answer, Arrive, Ask, Begin, Message, Restore, Sampled, Tokens
from guided_engine.processors.registry import Registry
from guided_engine.ranks.mask_memory import MaskMemory
from guided_engine.ranks.processed import Processed
from guided_engine.ranks.row_edits import StepEdits
from guided_engine.ranks.step import Arrival, Masks, Plan, ReadFaults, ReadSampled

_GUILTY: Final = 3  # processes that died in a row as they were at work for one sequence
_MOST_PROCESSES: Final = 5  # that may die in a step before one is found guilty
_log = logging.getLogger("guided_engine")


class _Pending(NamedTuple):
    """A step whose tokens have not been read."""

    step: int
    sampled: ReadSampled
    faults: ReadFaults


class RankGuide:
    """All sequences of this rank that are guided or have processors; `send` takes records, and never blocks.

    Attributes
    ----------
    is_sampling
        Whether a sequence of ours samples in this step.
    invalid_drafts
        By guided request, how many of this step's scheduled drafts its grammar forbids, or nobody proposed:
        what vLLM does not count as proposed where its scheduler has the grammar.
    """

    def __init__(
        self, traits: RankTraits, matchers: Matchers, registry: Registry, send: Callable[[AnyRecord], None]
    ) -> None:
        self._traits = traits
        self._matchers = matchers
        self._memory = MaskMemory(matchers.memory)
        self.waits = self._memory.waits
        self._processed = Processed(traits.rank, traits.vocab_size, registry, send)
        self._ours: dict[str, Arrive] = {}
        self._numbers = 0
        self._needed: dict[str, int] = {}  # of those that have not sampled: tokens to compute before they do
        self._ended: dict[str, ErrorCode] = {}  # of ours, reported or about to be
        self._ends: list[Failed] = []  # to be reported
        self._given_up: dict[str, str] = {}  # that the matchers are to be told of
        self._pending: deque[_Pending] = deque()
        self._log: deque[Tokens] = deque()  # what was sampled since the oldest of ours arrived
        self._unsent: list[Message] = []
        self._plan: Plan | None = None
        self._learned: tuple[Sequence[str], Sequence[Sequence[int]]] = ((), ())
        self._is_asked, self._asked = False, 0
        self._step = 0
        self.is_sampling = False
        self.invalid_drafts: dict[str, int] = {}

    @property
    def is_empty(self) -> bool:
        """Return whether no sequence here is ours."""
        return not self._ours

    @property
    def has_factories(self) -> bool:
        """Return whether the model has processors: each request that arrives is to be an Arrival then."""
        return bool(self._processed)

    @property
    def scheduled_drafts(self) -> Mapping[str, Sequence[int]]:
        """Return this step's drafts by request; -1 where the scheduler does not know one."""
        return {} if self._plan is None else self._plan.drafts

    def has_processors(self, request_id: str) -> bool:
        """Return whether a request that has arrived has processors."""
        return request_id in self._processed

    def begin(self, plan: Plan) -> None:
        """Take over what the scheduler decided for this step."""
        self._step += 1
        self.leave_step()
        finished = [one for one in plan.finished if one in self._ours]
        before: float = self._step - self._traits.is_async if finished or not self._traits.is_async else 0
        # `not plan.computed`: no other one goes on, the engine core has read its last tokens or dropped them.
        if finished and (not plan.computed or any(one in self._processed for one in finished)):
            before = math.inf
        sampled = self._read(before)
        for request_id in finished:
            self._forget(request_id)
        arrivals = [made for one in plan.arrivals if (made := self._arrived(one)) is not None]
        for request_id in filter(self._ours.__contains__, plan.resumed):
            self._come_back(request_id, plan.resumed[request_id])
        self._needed |= {one.request_id: _needed(one) for one in arrivals}
        self._note_samplers(plan, arrivals)
        if self._processed:
            self._processed.begin(self._step, plan)
            self._end_processed()
        self._plan = plan
        self._unsent.append(
            Begin(
                step=self._step,
                sampled=sampled,
                finished=finished,
                arrivals=arrivals,
                resumed=plan.resumed,  # type: ignore[arg-type]  # it is only written
                computed=plan.computed,  # type: ignore[arg-type]  # likewise
                scheduled=plan.scheduled,  # type: ignore[arg-type]  # likewise
                drafts=plan.drafts,  # type: ignore[arg-type]  # likewise
                given_up=self._taken_given_up(),
                waited_ns=self.waits.total_ns,
            )
        )
        if self.is_sampling and plan.is_whole and not self._pending:
            self._ask()  # masks are made while the forward pass runs
        elif not self.is_sampling or arrivals or finished:
            self._send()  # else with what was sampled: to wake a process takes this thread some time

    def skip_step(self) -> None:
        """Take note of a step in which nothing here is ours."""
        self.leave_step()
        self._step += 1
        self._pending.clear()

    def leave_step(self) -> None:
        """Forget which sequences sample, and their drafts: none, until the next step is taken over."""
        self.is_sampling = self._is_asked = False
        self._plan, self.invalid_drafts, self._learned = None, {}, ((), ())

    def settle(self) -> None:
        """Accept what earlier steps sampled; waits for their copies to the host alone."""
        if sampled := self._read(math.inf):
            self._unsent.append(Sampled(sampled))
            if self._plan is not None and not self._plan.is_whole:
                self._send()  # taken while the draft model still runs

    def learn_drafts(self, request_ids: Sequence[str], drafts: Sequence[Sequence[int]]) -> None:
        """Take each request's drafts (token ids) of the last step; -1 where the runner does not say them."""
        self._learned = request_ids, drafts
        self._processed.learn_drafts(request_ids, drafts)

    def ask(self) -> None:
        """Settle what earlier steps sampled, and have this step's masks made."""
        self.settle()
        if self._processed:
            self._end_processed()
        if not self._is_asked or self._given_up:
            self._ask()

    def masks(self) -> Masks | None:
        """Return this step's masks, once they are made; None if nothing is to be masked."""
        self.ask()
        self._is_asked = False
        try:
            answer = self._answer()
        except MatchersLostError as lost:
            answer = self._recovered(lost)
        self.invalid_drafts = answer.invalid
        for end in answer.ends:
            self._end(end.request_id, ErrorCode(end.code))
        if not answer.request_ids:
            return None
        return Masks(answer.request_ids, self._memory.filled(answer.rows), answer.acceptable)

    def handed_over(self, wait: Callable[[], None]) -> None:
        """Take note that this step's masks are on their way to the device; `wait` returns once they are."""
        self._memory.handed_over(wait)

    def edits(self) -> StepEdits | None:
        """Return what processors change in this step's logits, None for nothing; after `ask`."""
        return self._processed.edits(self.scheduled_drafts) if self._processed else None

    def give_up(self, edits: StepEdits) -> None:
        """End the sequences of edits that could not be applied, within the handler of what was raised."""
        self._processed.give_up(edits)

    def sampled(self, sampled: ReadSampled, faults: ReadFaults = dict) -> None:
        """Remember what this step sampled, and what went wrong in it, to be read when it is needed."""
        self._pending.append(_Pending(self._step, sampled, faults))

    def ends(self) -> list[Failed]:
        """Return the sequences that are to end and have not been reported yet."""
        if self._processed:
            self._end_processed()
        ends, self._ends = self._ends, []
        return ends

    def fail_all(self, code: ErrorCode = ErrorCode.SEQUENCE_MATCHER_FAILED) -> None:
        """End every sequence here, after a fault that cannot be told apart."""
        for request_id in self._ours:
            self._give_up(request_id, code)

    def close(self) -> None:
        """Close the factories of processors, and end the process of the matchers; the rank ends."""
        self._processed.close()
        self._matchers.close()

    # --- what comes and goes ---

    def _arrived(self, arrival: Arrival) -> Arrive | None:
        """Return what the matchers are told of a request; None if it is none of ours."""
        processed = self._processed.arrive(arrival, self._step) if self._processed else None
        if not arrival.is_guided and processed is None:
            return None
        known = self._ours.get(arrival.request_id)
        if known is None:
            self._numbers += 1
        ticket = arrival.ticket
        if ticket is not None and (load := self._matchers.missing(ticket.key)) is not None:
            self._unsent.append(Restore([load], [], [], is_watched=False))
        takes_drafts = None if processed is None else processed.processors.support_speculation
        arrive = Arrive(
            request_id=arrival.request_id,
            number=self._numbers if known is None else known.number,
            since_step=self._step,
            prompt_tokens=[] if self._traits.reasoner is None else list(arrival.prompt_tokens),
            prompt_length=arrival.prompt_length,
            known_tokens=None if arrival.known_tokens is None else list(arrival.known_tokens),
            computed=arrival.computed,
            is_guided=arrival.is_guided,
            ticket=ticket,
            stop_tokens=list(arrival.stop_tokens),
            max_tokens=arrival.max_tokens,
            takes_drafts=takes_drafts,
        )
        self._ours[arrival.request_id] = arrive
        return arrive

    def _come_back(self, request_id: str, tokens: Sequence[int]) -> None:
        """Take note that a request is resumed with all its tokens (Model Runner V1)."""
        known = self._ours[request_id]
        self._ours[request_id] = msgspec.structs.replace(known, since_step=self._step, known_tokens=tokens)
        self._needed[request_id] = len(tokens)

    def _note_samplers(self, plan: Plan, arrivals: Sequence[Arrive]) -> None:
        """Find out whether one of ours samples; those that have done so once need no look."""
        scheduled = plan.scheduled
        if self._needed:
            computed = {one.request_id: one.computed for one in arrivals} | dict(plan.computed)
            for request_id, needed in list(self._needed.items()):
                count = scheduled.get(request_id)
                if count is not None and computed.get(request_id, 0) + count >= needed:
                    del self._needed[request_id]
        self.is_sampling = any(one in self._ours and one not in self._needed for one in scheduled)

    def _forget(self, request_id: str) -> None:
        self._processed.forget(request_id)
        del self._ours[request_id]
        self._needed.pop(request_id, None)
        self._ended.pop(request_id, None)
        oldest = min((one.since_step for one in self._ours.values()), default=math.inf)
        while self._log and self._log[0].step < oldest:
            self._log.popleft()

    # --- what ends a sequence ---

    def _end(self, request_id: str, code: ErrorCode) -> bool:
        """Have a sequence reported, once; return whether this is the first time."""
        arrive = self._ours.get(request_id)
        if arrive is None or request_id in self._ended:
            return False
        self._ended[request_id] = code
        self._processed.stop({request_id: code})
        key = "" if arrive.ticket is None else arrive.ticket.key
        self._ends.append(Failed(request_id=request_id, code=code.value, key=key))
        return True

    def _give_up(self, request_id: str, code: ErrorCode) -> None:
        """End a sequence for what the matchers do not know yet."""
        if self._end(request_id, code):
            self._given_up[request_id] = code.value

    def _end_processed(self) -> None:
        for request_id, code in self._processed.failed().items():
            self._give_up(request_id, code)

    def _taken_given_up(self) -> dict[str, str]:
        given_up, self._given_up = self._given_up, {}
        return given_up

    # --- the matchers ---

    def _read(self, before: float) -> list[Tokens]:
        """Read what earlier steps sampled: those `before` one, and of the others what is here."""
        found = []
        while self._pending and (self._pending[0].step < before or self._pending[0].sampled.is_here()):
            step, sampled, read_faults = self._pending.popleft()
            request_ids, tokens = sampled.read()  # it waits; until then nothing is known of faults
            faults = read_faults()
            made = Tokens(step, list(request_ids), tokens)
            if self._processed:
                self._processed.accept(made, faults)
                made.tokens = [
                    [] if (fault := faults.get(name)) is not None and fault.row < len(row) else row
                    for name, row in zip(made.request_ids, tokens, strict=False)
                ]
            found.append(made)
        self._log.extend(found)
        return found

    def _ask(self) -> None:
        request_ids, drafts = self._learned
        self._asked += 1
        slot, given_up = self._memory.next_slot(), self._taken_given_up()
        self._unsent.append(Ask(self._asked, slot, list(request_ids), list(map(list, drafts)), given_up))
        self._send()
        self._is_asked = True

    def _send(self) -> None:
        self._matchers.send(*self._unsent)
        self._unsent = []

    def _answer(self) -> Answer:
        """Return the answer to the latest Ask; one before may not have been fetched in its step."""
        while (answer := self._matchers.answer()).number != self._asked:
            pass
        return answer

    def _recovered(self, lost: MatchersLostError) -> Answer:
        """Have another process take over in this step, and return its answer.

        A sequence for which three in a row died or hung is what kills them, and ends: nobody else kills so
        often. Where they die of anything else, all of them end.
        """
        number, deaths, left = lost.number, 1, _MOST_PROCESSES
        while left:
            left -= 1
            try:
                self._take_over()
                return self._answer()
            except MatchersLostError as again:
                deaths = deaths + 1 if again.number == number else 1
                number = again.number
                if number > 0 and deaths == _GUILTY:
                    self._accuse(number, is_hung=again.is_hung)
                    left = _MOST_PROCESSES
        self.fail_all(ErrorCode.SEQUENCE_MATCHERS_LOST)
        return Answer(self._asked, [], 0, [], {}, [])

    def _take_over(self) -> None:
        self._matchers.renew()
        self._unsent = []
        outputs: dict[str, list[int]] = {
            name: list((one.known_tokens or [])[one.prompt_length :]) for name, one in self._ours.items()
        }
        for step, request_ids, tokens in map(msgspec.structs.astuple, self._log):
            for request_id, row in zip(request_ids, tokens, strict=False):
                if (arrive := self._ours.get(request_id)) is not None and step >= arrive.since_step:
                    outputs[request_id] += row
        keys = {one.ticket.key for one in self._ours.values() if one.ticket is not None}
        ended = {name: code.value for name, code in self._ended.items()}
        self._unsent.append(
            Restore(
                loads=[load for key in keys if (load := self._matchers.missing(key)) is not None],
                arrivals=[
                    msgspec.structs.replace(one, failure=ended.get(name, ""))
                    for name, one in self._ours.items()
                ],
                outputs=list(outputs.values()),
                is_watched=True,
            )
        )
        plan = self._plan
        if plan is not None:
            self._unsent.append(
                Begin(
                    step=self._step,
                    sampled=[],
                    finished=[],
                    arrivals=[],
                    resumed={},
                    computed=plan.computed,  # type: ignore[arg-type]  # it is only written
                    scheduled=plan.scheduled,  # type: ignore[arg-type]  # likewise
                    drafts=plan.drafts,  # type: ignore[arg-type]  # likewise
                    given_up={},
                    waited_ns=self.waits.total_ns,
                )
            )
        self._ask()

    def _accuse(self, number: int, *, is_hung: bool) -> None:
        code = ErrorCode.SEQUENCE_SLOW if is_hung else ErrorCode.SEQUENCE_MATCHER_FAILED
        for request_id, arrive in self._ours.items():
            if arrive.number == number:
                _log.error("guidedmodel: request %s ends: the processes of matchers die of it", request_id)
                self._end(request_id, code)


def _needed(arrive: Arrive) -> int:
    """Return how many tokens are to be computed before a request samples."""
    return arrive.prompt_length if arrive.known_tokens is None else len(arrive.known_tokens)
