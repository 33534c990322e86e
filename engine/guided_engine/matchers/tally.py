"""What is counted of one sequence."""

import time
from dataclasses import dataclass, field


@dataclass(slots=True)
class Tally:
    """Counts for the sequence's telemetry record. Durations in nanoseconds; `waited_before_ns` is the rank's.

    Drafts of a step count once its tokens are read: a step that is run after the sequence's end counts none,
    and so async scheduling counts what sync scheduling does.

    `proposed` are all drafts of the latest step, `forbidden` the first that the grammar does not allow and
    those after it.
    """

    start_ns: int = field(default_factory=time.time_ns)
    steps: int = 0
    fills: int = 0
    fill_ns: int = 0
    fill_max_ns: int = 0
    drafts_proposed: int = 0
    drafts_accepted: int = 0
    drafts_forbidden: int = 0
    proposed: int = 0
    forbidden: int = 0
    waited_before_ns: int = 0

    def count_step(self, drafts: int) -> None:
        """Count one step, in which so many drafts are verified."""
        self.steps += 1
        self.proposed, self.forbidden = drafts, 0

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
