"""What is known of batch sizes that share a choice, when other numbers are tried, and what that costs."""

from dataclasses import dataclass, field
from typing import Final

from guided_engine.speculation.step_times import StepTimes

_AGAIN: Final = 100  # steps until a number is tried whatever it looks like; each time twice as long
_AGAIN_AT_MOST: Final = 12_800  # some minutes; more often costs a share of the time where drafts are dear
SHARE: Final = 0.01  # of the time that trials may cost
_ALLOWED: Final = 60.0  # steps that trials may cost before the share counts: a cold start
_MOST_LEFT_S: Final = 60.0  # what is not spent in a busy hour cannot be spent at once
LONGEST_S: Final = 30.0  # what a step is taken to last at most: longer ones are pauses


@dataclass(slots=True)
class BatchClass:
    """Batch sizes that share one choice; indices are into the values."""

    times: StepTimes
    chosen: int
    seen_s: float  # on the controller's clock
    measured: set[int] = field(default_factory=set)
    steps: int = 0  # measured ones
    due: dict[int, tuple[int, int]] = field(default_factory=dict)  # by index: step of the next look, and wait
    wait: int = 0  # steps from a trial that changed nothing to the next
    rest: int = 0  # those that are left of it

    def choose(self, index: int) -> None:
        """Choose a number. What was left may have been measured badly, and is soon looked at again."""
        self.due[self.chosen] = self.steps + _AGAIN, _AGAIN
        self.chosen = index
        self.wait = self.rest = 0

    def overdue(self, count: int) -> int | None:
        """Return which of so many numbers to look at again, whatever it looks like, and put it off."""
        for index in range(count):
            due, wait = self.due.setdefault(index, (self.steps + _AGAIN, _AGAIN))
            if index != self.chosen and self.steps >= due:
                wait = min(2 * wait, _AGAIN_AT_MOST)
                self.due[index] = self.steps + wait, wait
                return index
        return None


@dataclass(slots=True)
class Trial:
    """A number that is not chosen, for a few steps of a class of batch sizes."""

    klass: int
    index: int
    measured: int = 0
    steps: int = 0


@dataclass(slots=True)
class Account:
    """What trials have cost, in seconds, against the time that there was."""

    left_s: float = 0.0
    is_open: bool = False

    def earn(self, seconds: float | None, elapsed_s: float) -> None:
        """Add what a step allows."""
        if not self.is_open and seconds is not None:
            self.left_s += min(_ALLOWED * min(seconds, LONGEST_S), _MOST_LEFT_S)
            self.is_open = True
        if self.left_s < _MOST_LEFT_S:
            self.left_s += SHARE * min(elapsed_s, LONGEST_S)
