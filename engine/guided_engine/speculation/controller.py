"""K by load: chooses the number of draft tokens for each batch size, from measured steps.

The tokens a second of a batch with K draft tokens are what its sequences yield (`Acceptance`) by what a step
takes (`StepTimes`, one for each class of batch sizes). Both have a known uncertainty. A number that may
well be better than the chosen one is tried for a few steps, a trial; one that is better beyond doubt is
chosen. What trials cost is an account, of a bounded share of the time.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from guided_engine.speculation.acceptance import Acceptance
from guided_engine.speculation.step_times import StepTimes
from guided_engine.speculation.trials import LONGEST_S, Account, BatchClass, Trial

CLASSES_AN_OCTAVE: Final = 4  # of batch sizes that share one choice
TRIAL: Final = 6  # steps that are measured, at least
_MOST_MEASURED: Final = 32  # of what is nearly as good, where a trial costs nearly nothing
_LONGEST_WAIT: Final = 1000  # steps between trials at one batch size
_LONGEST_TRIAL: Final = 80  # steps, measured or not: batch sizes that change end a trial
HYSTERESIS: Final = 0.01  # of tokens a second, by which another number must be better
_CERTAIN: Final = 1.0  # standard deviations by which a number that is chosen may be worse than it looks
_HOPE: Final = 2.0  # standard deviations by which a number may be better than it looks, to be tried
_WORTH: Final = 0.01  # uncertainty below which a trial would tell nothing
_TURN: Final = 0.02  # of its time, what a trial of an equal costs: lookups that change for nothing
_SHORTEST_S: Final = 1e-5


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
    elapsed_s
        Seconds since the step before, pauses of an idle engine among them.
    """

    batch: int
    drafts: int
    seconds: float | None
    accepted: Mapping[int, int]
    elapsed_s: float


class Controller:
    """Chooses among numbers of draft tokens, for each batch size.

    Attributes
    ----------
    lookup
        The number by batch size, 0 to the largest, as vLLM's scheduler reads it: the choice, or a trial.
    changes, trials
        How often the number that is chosen for the batch at hand changed, by another choice or another batch
        size, and how often another number was tried.

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
        self.trials = 0
        self._acceptance = Acceptance(self.values[-1])
        self._class_of = [_class(batch) for batch in range(len(lookup))]
        self._batches: dict[int, range] = {}
        for batch, klass in enumerate(self._class_of[1:], 1):
            self._batches[klass] = range(self._batches.get(klass, range(batch, batch)).start, batch + 1)
        self._classes: dict[int, BatchClass] = {}
        self._account = Account()
        self._trial: Trial | None = None
        self._now_s = 0.0
        self._at_hand: int | None = None  # what is chosen for the latest batch

    def chosen(self, batch: int) -> int:
        """Return the number that is chosen for a batch size, whatever is tried at the moment."""
        known = self._classes.get(self._class_of[batch])
        return self.lookup[batch] if known is None else self.values[known.chosen]

    def take(self, step: Step) -> None:
        """Take in a step, and write what follows into `lookup`. Times that no clock gives are left out."""
        if step.seconds is not None and not 0 < step.seconds < math.inf:
            step = replace(step, seconds=None)
        if not 0 <= step.elapsed_s < math.inf:
            step = replace(step, elapsed_s=0.0)
        self._learn(step)
        chosen = self.chosen(step.batch)
        self.changes += self._at_hand not in {None, chosen}
        self._at_hand = chosen

    def _learn(self, step: Step) -> None:
        self._now_s += step.elapsed_s
        self._account.earn(step.seconds, step.elapsed_s)
        if step.accepted:
            self._acceptance.take(step.drafts, step.accepted, step.elapsed_s)
        here = self._class_of[step.batch]
        if step.seconds is not None and step.drafts in self.values:
            self._measure(here, step.drafts, min(max(step.seconds, _SHORTEST_S), LONGEST_S))
        if here not in self._classes:
            return
        self._follow_trial(here, step)
        if self._trial is None:
            self._decide(here, step)

    def _measure(self, here: int, drafts: int, seconds: float) -> None:
        klass = self._classes.get(here)
        if klass is None:
            klass = self._classes[here] = self._new(here, drafts, seconds)
            self._write(here, klass.chosen)
        klass.times.age(self._now_s - klass.seen_s)
        klass.seen_s = self._now_s
        klass.times.take(self.values.index(drafts), seconds)
        klass.measured.add(self.values.index(drafts))
        klass.steps += 1

    def _new(self, here: int, drafts: int, seconds: float) -> BatchClass:
        """Return a class of batch sizes that is met for the first time."""
        if not self._classes:
            times = StepTimes(self.values, self.values.index(drafts), seconds)
            start = self.lookup[self._batches[here].start]
            return BatchClass(times, self.values.index(start), self._now_s)
        nearest = self._nearest(here)
        known = self._classes[nearest]
        times = known.times.near((here - nearest) / CLASSES_AN_OCTAVE)
        return BatchClass(times, self.values.index(self._guess(here, nearest)), known.seen_s)

    def _follow_trial(self, here: int, step: Step) -> None:
        trial = self._trial
        if trial is None:
            return
        trial.steps += 1
        is_over = trial.steps >= _LONGEST_TRIAL
        if trial.klass == here and step.drafts == self.values[trial.index]:
            klass = self._classes[here]
            gain = self._gain(klass, trial.index, klass.chosen)
            self._account.left_s -= (max(1 - math.exp(gain), 0.0) + _TURN) * min(step.elapsed_s, LONGEST_S)
            trial.measured += step.seconds is not None
            is_over = is_over or (
                not klass.times.is_off(trial.index)
                and self._is_enough(trial, gain, self._doubt(klass, trial.index, klass.chosen))
            )
        if is_over:
            self._trial = None
            self._write(trial.klass, self._classes[trial.klass].chosen)

    @staticmethod
    def _is_enough(trial: Trial, gain: float, doubt: float) -> bool:
        """Return whether a trial has told what it can."""
        if gain + _HOPE * doubt < 0:
            return trial.measured > 0
        is_known = trial.measured >= TRIAL and doubt < max(abs(gain) / _HOPE, _WORTH)
        return is_known or trial.measured >= _MOST_MEASURED

    def _decide(self, here: int, step: Step) -> None:
        klass = self._classes[here]
        best = self._better(klass)
        if best is not None:
            klass.choose(best)
            self._write(here, best)
        elif (
            step.seconds is not None
            and klass.chosen in klass.measured  # a trial is a comparison with it
            and self._account.left_s > 0
            and (tried := self._to_try(klass)) is not None
        ):
            self._trial = Trial(here, tried)
            self.trials += 1
            self._write(here, tried)
        elif klass.rest:
            klass.rest -= 1

    def _to_try(self, klass: BatchClass) -> int | None:
        """Return the index of a number that may be better, or that nobody has looked at for long."""
        if not klass.rest and (hoped := self._hoped(klass)) is not None:
            klass.rest = klass.wait
            klass.wait = min(max(2 * klass.wait, TRIAL), _LONGEST_WAIT)
            return hoped
        return klass.overdue(len(self.values))

    def _better(self, klass: BatchClass) -> int | None:
        """Return the index of the number that is better than the chosen one; None: none is for certain."""
        gains = {
            self._gain(klass, index, klass.chosen) - _CERTAIN * self._doubt(klass, index, klass.chosen): index
            for index in range(len(self.values))
            if index != klass.chosen
        }
        return gains[max(gains)] if max(gains) > HYSTERESIS else None

    def _hoped(self, klass: BatchClass) -> int | None:
        """Return the index of the number that may be better than the chosen one by most, if one may be."""
        hopes = {}
        for index in range(len(self.values)):
            doubt = self._doubt(klass, index, klass.chosen)
            if index < klass.chosen:  # drafts at all of its positions are seen anyway
                doubt = math.sqrt(klass.times.variance(index, klass.chosen))
            if doubt > _WORTH:  # 0 of the chosen one
                hopes[self._gain(klass, index, klass.chosen) + _HOPE * doubt] = index
        most = max(hopes, default=0.0)
        return hopes[most] if most > HYSTERESIS else None

    def _gain(self, klass: BatchClass, index: int, other: int) -> float:
        """Return the logarithm of the tokens a second with one number, by those with another."""
        yielded = [self._acceptance.tokens(self.values[each]) for each in (index, other)]
        return math.log(yielded[0] / yielded[1]) + klass.times.log_s[other] - klass.times.log_s[index]

    def _doubt(self, klass: BatchClass, index: int, other: int) -> float:
        """Return the standard deviation of `_gain`."""
        yielded = self._acceptance.deviation(self.values[index], self.values[other])
        return math.hypot(yielded, math.sqrt(klass.times.variance(index, other)))

    def _write(self, here: int, index: int) -> None:
        """Write a number for a class, and a guess for those that no step has met and it is nearest to."""
        for klass, batches in self._batches.items():
            if klass == here:
                number = self.values[index]
            elif klass not in self._classes and self._nearest(klass) == here:
                number = self._guess(klass, here)
            else:
                continue
            self.lookup[batches.start : batches.stop] = [number] * len(batches)

    def _guess(self, klass: int, nearest: int) -> int:
        """Return the number for batch sizes that no step has met, by what the nearest ones say of them."""
        log_s = self._classes[nearest].times.log_s_near((klass - nearest) / CLASSES_AN_OCTAVE)
        tokens = [self._acceptance.tokens(value) for value in self.values]
        rates = [math.log(own) - took for own, took in zip(tokens, log_s, strict=True)]
        return self.values[rates.index(max(rates))]

    def _nearest(self, klass: int) -> int:
        return min(self._classes, key=lambda other: abs(other - klass))


def _class(batch: int) -> int:
    return round(CLASSES_AN_OCTAVE * math.log2(batch)) if batch else 0
