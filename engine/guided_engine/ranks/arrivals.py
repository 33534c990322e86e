"""What becomes of a request that arrives on a rank: a sequence, with its matcher and its processors."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from guided_contract.errors import ErrorCode
from guided_contract.names import RESERVED_PREFIX
from guided_engine.processors.interface import SequenceInfo
from guided_engine.processors.registry import Registry
from guided_engine.processors.sequence import SequenceProcessors
from guided_engine.ranks.loaded_grammars import LoadedGrammars
from guided_engine.ranks.mask_wait import Waits
from guided_engine.ranks.processor_times import StepTimes
from guided_engine.ranks.reasoning import Reasoner, Reasoning
from guided_engine.ranks.sequence import GuidedSequence
from guided_engine.ranks.step import Arrival
from guided_engine.ranks.stopwatch import Stopwatch
from guided_engine.ranks.tally import Tally

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


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Makes the rank's sequences."""

    traits: RankTraits
    loaded_grammars: LoadedGrammars
    registry: Registry
    waits: Waits
    stopwatch: Stopwatch
    times: StepTimes

    def start(self, arrival: Arrival, step: int) -> GuidedSequence:
        """Return a new sequence, of which nothing has been sampled; `step` is the one in which it arrives."""
        known = arrival.known_tokens
        sequence = GuidedSequence(
            request_id=arrival.request_id,
            rank=self.traits.rank,
            prompt_length=arrival.prompt_length,
            ticket=arrival.ticket,
            needed=arrival.prompt_length if known is None else len(known),
            computed=arrival.computed,
            since_step=step,
            tally=Tally(waited_before_ns=self.waits.total_ns),
            stopwatch=self.stopwatch,
            stop_tokens=frozenset(arrival.stop_tokens),
            max_tokens=arrival.max_tokens,
        )
        if self.registry:
            self._add_processors(sequence, arrival)
        if arrival.is_guided:
            self._add_matcher(sequence, arrival)
        return sequence

    def _add_processors(self, sequence: GuidedSequence, arrival: Arrival) -> None:
        arguments = {k: v for k, v in arrival.arguments.items() if not k.startswith(RESERVED_PREFIX)}
        info = SequenceInfo[Any](
            request_id=arrival.request_id,
            prompt_tokens=tuple(arrival.prompt_tokens),  # the list is the runner's own
            stop_tokens=self._stops(arrival),
            max_tokens=arrival.max_tokens,
            sampling_params=arrival.sampling_params,
        )
        make = partial(self.registry.create, arguments, info)
        sequence.processors = SequenceProcessors(make, self.traits.vocab_size, self.times.add)
        sequence.start_processors()
        if not sequence.processors:
            sequence.processors = None  # nothing is to be asked in each step

    def _stops(self, arrival: Arrival) -> frozenset[int]:
        """Return its stop tokens; a client may name ids that no row of logits has."""
        return frozenset(t for t in arrival.stop_tokens if 0 <= t < self.traits.vocab_size)

    def _add_matcher(self, sequence: GuidedSequence, arrival: Arrival) -> None:
        if arrival.ticket is None:
            # The engine core refuses such a request; it must not run unconstrained if it comes all the same.
            sequence.fail(ErrorCode.REQUEST_NOT_ADMITTED)
            return
        try:
            sequence.matcher = self.loaded_grammars.matcher(arrival.ticket.key, arrival.stop_tokens)
        except Exception as error:  # noqa: BLE001 - native code; only this sequence pays
            _log.warning("guidedmodel: no matcher for request %s: %s", arrival.request_id, error)
            sequence.fail(ErrorCode.SEQUENCE_MATCHER_FAILED)
        if self.traits.reasoner is not None and sequence.matcher is not None:
            make = partial(self.traits.reasoner, arrival.ticket.reasoning_arguments)
            has_ended = arrival.ticket.reasoning_ended
            prompt = arrival.prompt_tokens
            stops = self._stops(arrival)
            sequence.reasoning = Reasoning(make, prompt, sequence.matcher, stops, has_ended=has_ended)
