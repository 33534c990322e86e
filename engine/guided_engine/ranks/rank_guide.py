"""Guided decoding on one rank, step by step: what the process of its matchers is told, and says.

An adapter (compat.runner) calls, per step: `begin` before the forward pass; `settle`, `learn_drafts`, `ask`,
`edits` and `masks` while it runs; `sampled` and `ends` after sampling. All ranks do the same from the same
inputs, so nothing is shared between them. Of a guided sequence in a steady batch only its tokens are kept.
"""

import logging
import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from guided_contract.errors import ErrorCode
from guided_contract.records import AnyRecord
from guided_contract.wire import Failed
from guided_engine.matchers.beside import MatchersBeside
from guided_engine.matchers.matching import RankTraits
from guided_engine.matchers.messages import Arrive, Begin, Message, Restore, Sampled, Tokens
from guided_engine.processors.registry import Registry
from guided_engine.ranks.conversation import Conversation
from guided_engine.ranks.history import History
from guided_engine.ranks.mask_memory import MaskMemory
from guided_engine.ranks.processed import Processed
from guided_engine.ranks.row_edits import StepEdits
from guided_engine.ranks.step import Arrival, Masks, Plan, ReadFaults, ReadSampled

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
        self,
        traits: RankTraits,
        matchers: MatchersBeside,
        registry: Registry,
        send: Callable[[AnyRecord], None],
    ) -> None:
        self._traits = traits
        self._matchers = matchers
        self._conversation = Conversation(matchers, self._begun, self._accuse)
        self._memory = MaskMemory(matchers.memory)
        self.waits = self._memory.waits
        self._processed = Processed(traits.rank, traits.vocab_size, registry, send)
        self._history = History()
        self._ours = self._history.requests
        self._ended: dict[str, ErrorCode] = {}  # of ours, reported or about to be
        self._ends: dict[str, Failed] = {}  # to be reported
        self._given_up: dict[str, str] = {}  # that the matchers are to be told of
        self._pending: deque[_Pending] = deque()
        self._plan: Plan | None = None
        self._learned: tuple[Sequence[str], Sequence[Sequence[int]]] = ((), ())
        self._step = 0
        self._told: tuple[list[str], dict[str, Any]] = ([], {})  # of a step: who samples, and their drafts
        self.is_sampling = self._is_asked = False
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
        self._end_processed()
        for request_id in finished:
            self._forget(request_id)
        arrivals = [made for one in plan.arrivals if (made := self._arrived(one)) is not None]
        for request_id in filter(self._ours.__contains__, plan.resumed):
            self._history.resume(request_id, self._step, plan.resumed[request_id])
        sampling = self._history.sampling(plan)
        self.is_sampling = bool(sampling)
        if self._processed:
            self._processed.begin(self._step, plan, sampling)
            for request_id, code in self._processed.failed().items():
                self._end(request_id, code)  # as it came
                self._ours[request_id].failure = code.value
        self._plan = plan
        drafts: dict[str, Any] = {name: plan.drafts[name] for name in sampling if name in plan.drafts}
        begin = Begin(self._step, self.waits.total_ns, bool(plan.computed))
        if sampling != self._told[0]:
            begin.sampling = sampling
        if drafts != self._told[1]:
            begin.drafts = drafts
        begin.sampled, begin.finished, begin.arrivals = sampled, finished, arrivals
        begin.resumed = {name: list(tokens) for name, tokens in plan.resumed.items()}
        begin.given_up = self._taken_given_up()
        self._conversation.tell(begin)
        self._told = sampling, drafts
        if self.is_sampling and plan.is_whole and not self._pending:
            self._ask()  # masks are made while the forward pass runs
        elif not self.is_sampling or arrivals or finished:
            self._conversation.send()  # else with what was sampled

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
            self._conversation.tell(Sampled(sampled))
        if self._plan is not None and not self._plan.is_whole:
            self._conversation.send()  # taken while the draft model still runs

    def learn_drafts(self, request_ids: Sequence[str], drafts: Sequence[Sequence[int]]) -> None:
        """Take each request's drafts (token ids) of the last step; -1 where the runner does not say them."""
        self._learned = request_ids, drafts
        self._processed.learn_drafts(request_ids, drafts)

    def ask(self) -> None:
        """Settle what earlier steps sampled, and have this step's masks made."""
        self.settle()
        self._end_processed()
        if not self._is_asked:
            self._ask()

    def masks(self) -> Masks | None:
        """Return this step's masks, once they are made; None if nothing is to be masked."""
        self.ask()
        self._is_asked = False
        answer = self._conversation.answer()
        if answer is None:
            self.fail_all(ErrorCode.SEQUENCE_MATCHERS_LOST)
            drafts = {name: each for name, each in self.scheduled_drafts.items() if name in self._ours}
            return self._memory.refusing(drafts, self._learned, self._traits.mask_rows)
        self.invalid_drafts = answer.invalid
        self._history.has_reasoned(answer.reasoned)
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
        self._end_processed()
        ends, self._ends = self._ends, {}
        return list(ends.values())

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
        key = "" if arrival.ticket is None else arrival.ticket.key
        if (missing := self._matchers.missing(key)) is not None:
            self._conversation.tell(Restore([missing], [], [], is_watched=False))
        arrive = self._history.arrive(
            arrival,
            self._step,
            self._matchers.text(key),
            tells_prompt=self._traits.reasoner is not None,
            takes_drafts=None if processed is None else processed.processors.support_speculation,
        )
        if arrive.failure:
            self._end(arrival.request_id, ErrorCode(arrive.failure))
        return arrive

    def _forget(self, request_id: str) -> None:
        self._processed.forget(request_id)
        self._history.forget(request_id)
        self._ended.pop(request_id, None)
        self._ends.pop(request_id, None)
        self._given_up.pop(request_id, None)

    # --- what ends a sequence ---

    def _end(self, request_id: str, code: ErrorCode) -> bool:
        """Have a sequence reported, once; return whether this is the first time."""
        arrive = self._ours.get(request_id)
        if arrive is None or request_id in self._ended:
            return False
        self._ended[request_id] = code
        self._processed.stop(request_id, code)
        key = "" if arrive.ticket is None else arrive.ticket.key
        self._ends[request_id] = Failed(request_id=request_id, code=code.value, key=key)
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
            told = sampled.read()  # it waits; until then nothing is known of faults
            faults = read_faults()
            made = Tokens(step, list(told.request_ids), told.tokens.tobytes(), told.counts.tobytes())
            if self._processed:
                self._processed.accept(made, faults)
                made.counts = told.counts_without(faults).tobytes()
            self._history.note(made)
            found.append(made)
        return found

    def _ask(self) -> None:
        self._conversation.ask(self._memory.next_slot(), self._learned, self._taken_given_up())
        self._is_asked = True

    def _begun(self) -> list[Message]:
        """Return what another process is told of all that is alive, and of this step."""
        restore = self._history.restore(self._ended, self._matchers.text)
        self._matchers.gave(restore.loads)
        return [restore, Begin(self._step, self.waits.total_ns, True, *self._told)]

    def _accuse(self, number: int, deaths: int, code: ErrorCode) -> bool:
        if (request_id := self._history.accused(number, deaths, code)) is None:
            return False
        _log.error("guidedmodel: request %s ends: the processes of matchers die of it", request_id)
        return self._end(request_id, code)
