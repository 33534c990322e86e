"""What a rank's matchers have been told and is still alive: given to the next process, if theirs dies."""

import itertools
import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec
import numpy as np

from guided_contract.errors import ErrorCode
from guided_contract.wire import Load
from guided_engine.matchers.messages import Arrive, Restore, Tokens
from guided_engine.ranks.step import Arrival, Plan

_REFUSED_S: Final = 30.0
_GUILTY: Final = 3
_NEVER: Final = -math.inf, ""
_MOST_UNSORTED: Final = 64  # steps: numpy sorts their tokens by request, a millisecond for 256


class History:
    """The rank's requests, what they have generated, and their grammars."""

    def __init__(self) -> None:
        self.requests: dict[str, Arrive] = {}
        self._numbers = self._since_step = 0  # the latter of the latest that came
        # Of those that have not sampled: tokens to compute before they do, and how many are at first.
        self._needed: dict[str, tuple[int, int]] = {}
        self._unsorted: list[Tokens] = []
        # By key of a grammar that kills processes: since when, and what its requests end with.
        self._refused: dict[str, tuple[float, str]] = {}
        self._outputs: dict[str, list[int]] = {}
        self._loads: dict[str, Load] = {}  # by request

    def arrive(
        self,
        arrival: Arrival,
        step: int,
        load: Load | None,
        *,
        tells_prompt: bool,
        takes_drafts: bool | None,
    ) -> Arrive:
        """Take a request that arrives in this step, or comes back; return what matchers are told of it."""
        known = self.requests.get(arrival.request_id)
        if known is None:
            self._numbers += 1
        arrive = self.requests[arrival.request_id] = Arrive(
            request_id=arrival.request_id,
            number=self._numbers if known is None else known.number,
            since_step=step,
            prompt_tokens=list(arrival.prompt_tokens) if tells_prompt else [],
            prompt_length=arrival.prompt_length,
            known_tokens=None if arrival.known_tokens is None else list(arrival.known_tokens),
            is_guided=arrival.is_guided,
            ticket=arrival.ticket,
            stop_tokens=list(arrival.stop_tokens),
            max_tokens=arrival.max_tokens,
            takes_drafts=takes_drafts,
        )
        since_s, code = self._refused.get("" if arrival.ticket is None else arrival.ticket.key, _NEVER)
        if time.monotonic() - since_s < _REFUSED_S:
            arrive.failure = code
        if load is not None:
            self._loads[arrival.request_id] = load
        self._begin_anew(arrive, arrival.computed, None if known is None else known.reasoned)
        return arrive

    def resume(self, request_id: str, step: int, tokens: Sequence[int]) -> None:
        """Take a request that is resumed with all its tokens, prompt included (Model Runner V1)."""
        known = self.requests[request_id]
        known.since_step, known.known_tokens = step, list(tokens)
        self._begin_anew(known, 0, known.reasoned)

    def _begin_anew(self, arrive: Arrive, computed: int, reasoned: int | None) -> None:
        self._sort()
        self._since_step = arrive.since_step
        known = arrive.known_tokens
        outputs = [] if known is None else known[arrive.prompt_length :]
        self._outputs[arrive.request_id] = list(outputs)
        needed = arrive.prompt_length if known is None else len(known)
        self._needed[arrive.request_id] = needed, computed
        # Of what was dropped its end may have been a part.
        arrive.reasoned = reasoned if reasoned is not None and reasoned <= len(outputs) else None

    def sampling(self, plan: Plan) -> list[str]:
        """Return which of them sample in a step; those that have done so once need no look."""
        if self._needed:
            known = dict(plan.computed)
            for request_id, (needed, computed) in list(self._needed.items()):
                count = plan.scheduled.get(request_id)
                if count is not None and known.get(request_id, computed) + count >= needed:
                    del self._needed[request_id]
        return [one for one in plan.scheduled if one in self.requests and one not in self._needed]

    def note(self, sampled: Tokens) -> None:
        """Take what a step has sampled."""
        if sampled.step < self._since_step:
            counts = np.frombuffer(sampled.counts, np.int64).copy()
            for index, request_id in enumerate(sampled.request_ids):
                known = self.requests.get(request_id)
                if known is not None and sampled.step < known.since_step:
                    counts[index] = 0
            sampled = msgspec.structs.replace(sampled, counts=counts.tobytes())
        self._unsorted.append(sampled)
        if len(self._unsorted) >= _MOST_UNSORTED:
            self._sort()

    def _sort(self) -> None:
        """Add what steps have sampled to what their requests have generated."""
        unsorted, self._unsorted = self._unsorted, []
        for (request_ids, _), same in itertools.groupby(
            unsorted, lambda one: (one.request_ids, len(one.tokens))
        ):
            some = list(same)
            shape = len(some), len(request_ids), -1
            if not some[0].tokens:
                continue
            counts = np.frombuffer(b"".join(one.counts for one in some), np.int64).reshape(shape)
            tokens = np.frombuffer(b"".join(one.tokens for one in some), np.int64).reshape(shape)
            counted = np.arange(tokens.shape[2]) < counts  # [steps, requests, most]
            for index, request_id in enumerate(request_ids):
                if (outputs := self._outputs.get(request_id)) is not None:
                    outputs += tokens[:, index][counted[:, index]].tolist()

    def has_reasoned(self, ended: Mapping[str, int]) -> None:
        """Take where requests have stopped reasoning; see messages.Arrive."""
        for request_id, reasoned in ended.items():
            if (known := self.requests.get(request_id)) is not None:
                known.reasoned = reasoned

    def forget(self, request_id: str) -> None:
        """Forget a request that has ended."""
        del self.requests[request_id]
        del self._outputs[request_id]
        self._needed.pop(request_id, None)
        self._loads.pop(request_id, None)

    def accused(self, number: int, deaths: int, code: ErrorCode) -> str | None:
        """Return the request of this number if it is what so many processes in a row died of, else None.

        Three are, as nobody else kills so often; one is where its grammar did. That is refused for a while.
        """
        name = next((name for name, one in self.requests.items() if one.number == number), None)
        if name is None:
            return None
        now_s = time.monotonic()
        self._refused = {key: since for key, since in self._refused.items() if now_s - since[0] < _REFUSED_S}
        ticket = self.requests[name].ticket
        if deaths < _GUILTY and (ticket is None or ticket.key not in self._refused):
            return None
        if ticket is not None:
            self._refused[ticket.key] = now_s, code.value
        return name

    def restore(self, ended: Mapping[str, ErrorCode], text: Callable[[str], Load | None]) -> Restore:
        """Return all of it; `ended` are requests that have; `text` returns a key's grammar as it is now."""
        self._sort()
        loads = {load.key: text(load.key) or load for load in self._loads.values()}
        return Restore(
            loads=list(loads.values()),
            arrivals=[
                msgspec.structs.replace(one, failure=ended[name].value if name in ended else "")
                for name, one in self.requests.items()
            ],
            outputs=[self._outputs[name] for name in self.requests],
            is_watched=True,
        )
