"""How many grammars compile at once, and with how much memory, by the container's limits."""

import dataclasses
import os
from typing import Final, Self

from guided_contract import cgroup
from guided_contract.config import CompileConfig

_CPUS_WITHOUT_QUOTA: Final = 4.0  # the host may have hundreds, and they are the ranks'
_CPUS_PER_WORKER: Final = 2
_LEAST_WORKERS: Final = 2  # one slow grammar holds up nobody
_MOST_WORKERS: Final = 16
_MOST_THREADS: Final = 8  # upstream's number
_THREADS_PER_CPU: Final = 2  # of all workers together: seldom do all compile at once
_LEAST_MEMORY_BYTES: Final = 128 << 20  # below it nothing compiles
_SERVICE_BYTES: Final = 256 << 20  # the service itself, its telemetry, llguidance's texts
_SHARE_OF_GRAMMARS: Final = 8


@dataclasses.dataclass(frozen=True, slots=True)
class Capacity:
    """What there is for grammars."""

    workers: int  # compiles at once
    threads: int  # of one compile
    memory_limit: int | None = None  # the container's, in bytes; None: there is none

    @classmethod
    def of_this_container(cls, config: CompileConfig) -> Self:
        """Read the cgroup's limits and this process's affinity."""
        quota = cgroup.cpu_quota()
        cpus = min(_CPUS_WITHOUT_QUOTA if quota is None else quota, len(os.sched_getaffinity(0)))
        return cls.of(config, cpus, cgroup.memory_limit())

    @classmethod
    def of(cls, config: CompileConfig, cpus: float, memory_limit: int | None) -> Self:
        """Share `cpus` CPUs among workers; `memory_limit` is the container's in bytes, None: no limit."""
        workers = config.workers or min(max(_LEAST_WORKERS, int(cpus) // _CPUS_PER_WORKER), _MOST_WORKERS)
        threads = min(max(1, int(_THREADS_PER_CPU * cpus / workers)), _MOST_THREADS)
        return cls(workers, threads, memory_limit)

    def room_bytes(self, wanted: int) -> int:
        """Return the bytes that compiled grammars may fill, at most `wanted`."""
        return wanted if self.memory_limit is None else min(wanted, self.memory_limit // _SHARE_OF_GRAMMARS)

    def compile_bytes(self, wanted: int, room_bytes: int, template_bytes: int) -> int:
        """Return the bytes that one compile may use beyond the template, at most `wanted`.

        All that compile at once must fit into the container, or the kernel may kill all of it.
        """
        if self.memory_limit is None:
            return wanted
        left = self.memory_limit - _SERVICE_BYTES - template_bytes - room_bytes
        return min(wanted, max(left // self.workers, _LEAST_MEMORY_BYTES))
