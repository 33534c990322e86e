"""K by load: chooses the number of draft tokens for each batch size, from measured steps.

One rule: a number that is not chosen is tried for a few steps, and chosen if it gave more tokens a second.
One that lost is tried again when a hundred times as many steps have passed as its trial cost.
"""

import math
import statistics
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

_CLASSES_AN_OCTAVE: Final = 4  # of batch sizes that share one choice
_GAIN: Final = 0.02  # of tokens a second, by which another number must be better
_SHARE: Final = 0.01  # of the steps, that trials may cost
_FEWEST_STEPS: Final = 8  # of a trial, and so many that its sequences together take
_FEWEST_SEQUENCES: Final = 64
_HOPELESS: Final = 0.5  # of the chosen one's tokens a second, with which a trial ends after two steps
_LONGEST_TRIAL: Final = 200  # steps, measured or not: batch sizes that change end a trial
_KEPT: Final = 16  # latest steps with a number, whose median counts: pauses and cold starts are outliers
_AGAIN: Final = 100  # steps to the next trial of a number, twice as many each time that it lost
_AGAIN_AT_MOST: Final = 12_800
_PRIOR: Final = 8  # sequences' steps that a guess of acceptance counts for, and
_SEEN: Final = 400  # that all that was seen of it counts for, at most


@dataclass(frozen=True, slots=True)
class Step:
    """One step whose tokens are known.

    Parameters
    ----------
    batch
        Its sequences, at least 1.
    drafts
        Draft tokens that each sequence was given, as they were asked for.
    seconds
        What it took; None where that says nothing of decoding: prompts were in it, or the number of draft
        tokens had just changed.
    accepted
        Sequences that decoded, by how many of their draft tokens were accepted.
    """

    batch: int
    drafts: int
    seconds: float | None
    accepted: Mapping[int, int]


@dataclass(slots=True)
class _Batches:
    """Batch sizes that share a choice; indices are into the controller's values."""

    sizes: range
    chosen: int
    times: list[deque[float]]  # of the latest steps with each number
    steps: int = 0  # measured ones
    due: dict[int, int] = field(default_factory=dict)  # when, in steps, a number is tried
    waits: dict[int, int] = field(default_factory=dict)


@dataclass(slots=True)
class _Trial:
    batches: _Batches
    index: int
    steps: int = 0
    measured: int = 0
    sequences: int = 0


class Controller:
    """Chooses among numbers of draft tokens, for each batch size.

    Attributes
    ----------
    lookup
        The number by batch size, 0 to the largest, as vLLM's scheduler reads it: the choice, or a trial.
    changes
        How often the number that is chosen for the batch at hand changed, by another choice or another batch
        size.

    Parameters
    ----------
    lookup
        What vLLM has by itself. The numbers in it are those that may be chosen: vLLM has captured graphs for
        no others.

    Raises
    ------
    ValueError
        It holds one number alone, so that there is nothing to choose.
    """

    def __init__(self, lookup: Sequence[int]) -> None:
        self.values: Final = sorted(set(lookup[1:]))
        if len(self.values) == 1:
            raise ValueError(f"the schedule holds one number of draft tokens: {self.values}")
        self.lookup = list(lookup)
        self.changes = 0
        # By position: the share of sequences' steps in which a draft there was accepted, and how many say so.
        self._shares = [0.5 ** (index + 1) for index in range(self.values[-1])]
        self._seen = [_PRIOR] * len(self._shares)
        self._known: dict[int, _Batches] = {}
        self._trial: _Trial | None = None
        self._at_hand: int | None = None  # what is chosen for the latest batch

    def chosen(self, batch: int) -> int:
        """Return the number that is chosen for a batch size, whatever is tried at the moment."""
        known = self._known.get(_class(batch))
        return self.lookup[batch] if known is None else self.values[known.chosen]

    def take(self, step: Step) -> None:
        """Take in a step, and write what follows into `lookup`."""
        self._learn_acceptance(step)
        # A clock may err.
        if step.seconds is not None and 0 < step.seconds < math.inf and step.drafts in self.values:
            self._measure(step, step.seconds)
        if self._trial is not None:
            self._follow(self._trial)
        chosen = self.chosen(step.batch)
        self.changes += self._at_hand not in {None, chosen}
        self._at_hand = chosen

    def _learn_acceptance(self, step: Step) -> None:
        sequences = sum(step.accepted.values())
        for index in range(min(step.drafts, len(self._shares)) if sequences else 0):
            taken = sum(number for length, number in step.accepted.items() if length > index)
            self._seen[index] += sequences
            self._shares[index] += (taken / sequences - self._shares[index]) * sequences / self._seen[index]
            self._seen[index] = min(self._seen[index], _SEEN)

    def _measure(self, step: Step, seconds: float) -> None:
        here = _class(step.batch)
        batches = self._known.get(here)
        if batches is None:
            batches = self._known[here] = self._met(here, step.batch)
        index = self.values.index(step.drafts)
        batches.times[index].append(seconds)
        batches.steps += 1
        trial = self._trial
        if trial is not None:
            if trial.batches is batches and trial.index == index:
                trial.measured += 1
                trial.sequences += step.batch
        elif len(batches.times[batches.chosen]) == _KEPT:
            self._try_another(batches)

    def _met(self, here: int, batch: int) -> _Batches:
        """Return a class of batch sizes that is met for the first time, with the lookup's choice."""
        sizes = [size for size in range(1, len(self.lookup)) if _class(size) == here]
        times: list[deque[float]] = [deque(maxlen=_KEPT) for _ in self.values]
        return _Batches(range(sizes[0], sizes[-1] + 1), self.values.index(self.lookup[batch]), times)

    def _try_another(self, batches: _Batches) -> None:
        for index in range(len(self.values)):
            if index != batches.chosen and batches.steps >= batches.due.get(index, 0):
                self._trial = _Trial(batches, index)
                batches.times[index].clear()
                chosen = self.values[batches.chosen]  # which tells nothing of the positions behind it
                self._seen[chosen:] = [_PRIOR] * (len(self._seen) - chosen)
                self._write(batches, index)
                return

    def _follow(self, trial: _Trial) -> None:
        """Take note of a step since the trial began, and end it once it has told what it can."""
        trial.steps += 1
        batches, index = trial.batches, trial.index
        is_hopeless = trial.measured > 1 and self._rate(batches, index) < _HOPELESS * self._rate(
            batches, batches.chosen
        )
        is_enough = trial.measured >= _FEWEST_STEPS and trial.sequences >= _FEWEST_SEQUENCES
        if not (is_hopeless or is_enough or trial.steps >= _LONGEST_TRIAL):
            return
        self._trial = None
        lost = wait = 0.0
        loser = index
        if trial.measured:
            share = self._rate(batches, index) / self._rate(batches, batches.chosen)
            if is_enough and share > 1 + _GAIN:
                loser, batches.chosen = batches.chosen, index
                batches.waits.clear()
            else:
                times = [statistics.median(batches.times[each]) for each in (index, batches.chosen)]
                lost = trial.measured * max(1 - share, 0) * times[0] / times[1]
                wait = batches.waits.get(index, 0) * 2
        wait = min(max(wait, _AGAIN, lost / _SHARE), _AGAIN_AT_MOST)
        batches.waits[loser] = round(wait)
        batches.due[loser] = batches.steps + round(wait)
        self._write(batches, batches.chosen)

    def _rate(self, batches: _Batches, index: int) -> float:
        """Return the tokens a second of a sequence with a number that has been measured."""
        tokens = 1 + sum(self._shares[: self.values[index]])
        return tokens / statistics.median(batches.times[index])

    def _write(self, batches: _Batches, index: int) -> None:
        """Write a number for its batch sizes; as a guess for those that no step has met, too, if chosen."""
        known = {size for each in self._known.values() for size in each.sizes}
        for size in range(1, len(self.lookup)):
            if size in batches.sizes or (index == batches.chosen and size not in known):
                self.lookup[size] = self.values[index]


def _class(batch: int) -> int:
    return round(_CLASSES_AN_OCTAVE * math.log2(batch)) if batch else 0
