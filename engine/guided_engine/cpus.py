"""How many CPUs this container has, and what each rank's share of them is."""

import math
import os
from dataclasses import dataclass

from guided_contract import cgroup


@dataclass(frozen=True, slots=True)
class Cpus:
    """The CPUs that may be used, and how many of them at a time (None: all)."""

    count: int
    quota: float | None = None

    @classmethod
    def of_this_process(cls) -> "Cpus":
        """Read the affinity and the cgroup's quota."""
        return cls(len(os.sched_getaffinity(0)), cgroup.cpu_quota())

    @property
    def limited(self) -> bool:
        """Whether the quota allows fewer threads than there are CPUs, which vLLM and OpenMP do not see."""
        return self.quota is not None and self.quota < self.count

    def threads_per_rank(self, ranks: int) -> int:
        """Return how many threads each of `ranks` processes can keep running."""
        usable = self.count if self.quota is None else min(self.count, math.floor(self.quota))
        return max(1, usable // ranks)
