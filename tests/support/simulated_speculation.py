"""A device that speculates, as a model: what steps take, what is accepted. For K by load."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from guided_engine.speculation.controller import Controller, Step


@dataclass(frozen=True)
class Device:
    """What a step takes, in seconds, and the chance that a draft token is accepted.

    A step takes `fixed_s` for weights and launches, and `row_s` for each row of logits that is verified; with
    `is_roofline` those that fit beside the weights are free. Each draft token takes `draft_s`, and
    `draft_row_s` for each sequence. `acceptance` is of one whose predecessors were accepted; `noise` is the
    standard deviation of a step, as a share of it.
    """

    fixed_s: float
    row_s: float
    draft_s: float
    draft_row_s: float
    acceptance: float
    noise: float = 0.0
    is_roofline: bool = False

    def seconds(self, batch: int, drafts: int) -> float:
        """Return what a step takes on average."""
        rows = self.row_s * batch * (1 + drafts)
        target = max(self.fixed_s, rows) if self.is_roofline else self.fixed_s + rows
        return target + drafts * (self.draft_s + self.draft_row_s * batch)

    def tokens(self, drafts: int) -> float:
        """Return what a step of a sequence yields on average."""
        return sum(self.acceptance**index for index in range(drafts + 1))

    def best(self, batch: int, values: Sequence[int]) -> int:
        """Return the fixed number of draft tokens that yields most tokens a second."""
        return max(values, key=lambda drafts: self.tokens(drafts) / self.seconds(batch, drafts))


@dataclass
class Run:
    """A scheduler that has one step in flight while it schedules the next, and a device behind it.

    A lookup that changes after a step is read by the step after the next; drafts that a step proposes are
    verified in the one after it.
    """

    drawn: random.Random
    verified: int = 0
    scheduled: int = 0
    pause_every: int = 0  # steps from one long pause to the next; 0: none
    prompts_share: float = 0.0  # of steps that also take prompts in
    seconds: float = 0.0
    tokens: float = 0.0
    steps: int = 0

    def step(self, device: Device, batch: int, chosen: int) -> Step:
        """Run a step; `chosen` is what the lookup says once the step before is known."""
        self.steps += 1
        verified, proposed = self.verified, self.scheduled
        self.verified, self.scheduled = proposed, chosen
        # The target verifies what was proposed before, and the draft proposes what the next one verifies.
        mean = device.seconds(batch, verified) + (proposed - verified) * (
            device.draft_s + device.draft_row_s * batch
        )
        took = mean * max(self.drawn.gauss(1, device.noise), 0.3)
        is_clean = verified == proposed
        if self.drawn.random() < self.prompts_share:
            took, is_clean = took * 4, False
        if self.pause_every and self.steps % self.pause_every == 0:
            took += 2.0
        accepted: dict[int, int] = {}
        for _ in range(batch):
            length = 0
            while length < verified and self.drawn.random() < device.acceptance:
                length += 1
            accepted[length] = accepted.get(length, 0) + 1
        self.seconds += mean
        self.tokens += batch * device.tokens(verified)
        return Step(batch, verified, took if is_clean else None, accepted)


def rate(device: Device, batch: int, drafts: int) -> float:
    """Return tokens a second of a fixed number of draft tokens, on average."""
    return batch * device.tokens(drafts) / device.seconds(batch, drafts)


def share_of_best(phases: Sequence[tuple[Device, int, float]], made: Controller, run: Run) -> float:
    """Return the mean tokens a second by those of the best number in each phase.

    A phase is a device, its sequences, and for how many seconds they run.
    """
    ideal = 0.0
    for device, batch, length_s in phases:
        began_s = run.seconds
        while run.seconds < began_s + length_s:
            made.take(run.step(device, batch, made.lookup[batch]))
        lasted_s = run.seconds - began_s
        ideal += lasted_s * rate(device, batch, device.best(batch, made.values))
    return run.tokens / ideal
