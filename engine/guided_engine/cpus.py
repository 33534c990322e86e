"""How many CPUs this container has, and how tensor-parallel ranks share them."""

import math
import os
from dataclasses import dataclass

from guided_contract import cgroup


@dataclass(frozen=True, slots=True)
class Cpus:
    """The CPUs that may be used: which ones, and how many of them at a time (None: all)."""

    ids: tuple[int, ...]
    quota: float | None = None

    @classmethod
    def of_this_process(cls) -> "Cpus":
        """Read the affinity and the cgroup's quota."""
        return cls(tuple(sorted(os.sched_getaffinity(0))), cgroup.cpu_quota())

    @property
    def limited(self) -> bool:
        """Whether the quota allows fewer threads than there are CPUs, which vLLM and OpenMP do not see."""
        return self.quota is not None and self.quota < len(self.ids)

    def threads_per_rank(self, ranks: int) -> int:
        """Return how many threads each of `ranks` processes can keep running."""
        usable = min(len(self.ids), math.floor(self.quota)) if self.quota is not None else len(self.ids)
        return max(1, usable // ranks)

    def binding(self, ranks: int) -> str:
        """Return VLLM_CPU_OMP_THREADS_BIND: the CPUs of each rank, disjoint as far as there are enough."""
        share = self.threads_per_rank(ranks)
        parts = [
            [self.ids[(rank * share + n) % len(self.ids)] for n in range(share)] for rank in range(ranks)
        ]
        return "|".join(",".join(map(str, part)) for part in parts)
