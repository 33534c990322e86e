"""How many CPUs this container has, and how tensor-parallel ranks share them."""

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_CGROUP_V2: Final = "cpu.max"
_CGROUP_V1: Final = ("cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us")


@dataclass(frozen=True, slots=True)
class Cpus:
    """The CPUs that may be used: which ones, and how many of them at a time (None: all)."""

    ids: tuple[int, ...]
    quota: float | None = None

    @classmethod
    def of_this_process(cls) -> "Cpus":
        """Read the affinity and the cgroup's quota."""
        return cls(tuple(sorted(os.sched_getaffinity(0))), read_quota())

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


def read_quota(root: Path = Path("/sys/fs/cgroup")) -> float | None:
    """Return the cgroup's CPU quota in CPUs, None where there is none (version 2 or 1)."""
    try:
        quota, period = _fields(root)
        return int(quota) / int(period) if int(quota) > 0 else None
    except (OSError, ValueError):  # no cgroup file system, or "max"
        return None


def _fields(root: Path) -> Sequence[str]:
    if (root / _CGROUP_V2).exists():
        return (root / _CGROUP_V2).read_text().split()
    return [(root / name).read_text().strip() for name in _CGROUP_V1]
