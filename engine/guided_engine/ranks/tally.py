"""What is counted of one sequence, and how it ended."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from guided_contract.records import EndReason
from guided_engine.ranks.mask_wait import Waits

# By vLLM's finish reasons.
_ENDS: Final[dict[str, EndReason]] = {"stop": "stopped", "repetition": "stopped", "length": "length"}


@dataclass(slots=True)
class Tally:
    """Counts for the sequence's telemetry record. Durations in nanoseconds; `waits` are the rank's.

    Drafts of a step count once its tokens are read: a step that is run after the sequence's end counts none,
    and so async scheduling counts what sync scheduling does.

    `cut` are drafts of the step to come that the grammar forbade before a sync scheduler took them;
    `proposed` are all of the latest step, `forbidden` the first that the grammar does not allow and those
    after it.
    """

    start_ns: int = field(default_factory=time.time_ns)
    steps: int = 0
    fills: int = 0
    fill_ns: int = 0
    fill_max_ns: int = 0
    drafts_proposed: int = 0
    drafts_accepted: int = 0
    drafts_forbidden: int = 0
    cut: int = 0
    proposed: int = 0
    forbidden: int = 0
    waits: Waits = field(default_factory=Waits)
    waited_before_ns: int = 0

    def __post_init__(self) -> None:
        self.waited_before_ns = self.waits.total_ns

    def count_step(self, drafts: int) -> None:
        """Count one step, in which so many drafts are verified."""
        self.steps += 1
        self.proposed, self.forbidden = self.cut + drafts, self.cut
        self.cut = 0

    def count_sampled(self, tokens: int) -> None:
        """Count the latest step's drafts; it sampled so many tokens."""
        self.drafts_proposed += self.proposed
        self.drafts_forbidden += self.forbidden
        # Model Runner V1 also samples what comes after a text's end as it was drafted.
        self.drafts_accepted += min(tokens - 1, self.proposed - self.forbidden)
        self.proposed = self.forbidden = 0  # once, whatever becomes of the next step

    def count_fill(self, duration_ns: int) -> None:
        """Count one mask."""
        self.fills += 1
        self.fill_ns += duration_ns
        self.fill_max_ns = max(self.fill_max_ns, duration_ns)


def end_reason(finish: str, stop_texts: Sequence[str], text: Callable[[], bytes]) -> EndReason:
    """Return why it ended; `finish` is vLLM's reason, empty where the engine core did not tell it.

    `stop_texts` the API server looks for in `text()`: it aborts the request as if its client had gone.
    """
    if finish in _ENDS:
        return _ENDS[finish]
    generated = text() if stop_texts else b""
    return "stopped" if any(stop.encode() in generated for stop in stop_texts) else "aborted"
