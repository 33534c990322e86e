"""The operator as it is measured: started with the rights of its account, and what it uses."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from devtools.process import Process, tail

from guided_operator.builders.pod_paths import Site
from guided_operator.kube.key import Key
from guided_operator.reconcile.observe import Observed
from guided_operator.reconcile.plan import plan
from support.cluster import Cluster
from support.operator_process import eventually, running
from support.resources import model

_PLUGIN_IMAGE: Final = "registry.test/guidedmodel:1"
_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")


@contextmanager
def started(cluster: Cluster, folder: Path) -> Iterator[Process]:
    """Run one replica of the operator, as leader."""
    with running(cluster, folder, "operator") as replica:
        eventually(replica.leads, what="the only replica leads")
        yield replica.process


def demand_running(process: Process) -> None:
    """Refuse to measure what is no longer there.

    Raises
    ------
    RuntimeError
        The controller has ended, as one does that lost its Lease; the message holds the end of its log.
    """
    if not process.is_running():
        raise RuntimeError(f"{process.name} ended:\n{tail(process.log)}")


def children() -> list[dict[str, Any]]:
    """Return what the operator makes of one of the benchmark's models."""
    key = Key("any", "any")
    resource = model(key.namespace, key.name)
    resource["metadata"] |= {"uid": "any", "generation": 1}
    planned = plan(Observed(key, resource), Site(_PLUGIN_IMAGE))
    assert not planned.problems, planned.problems
    return list(planned.children)


def cpu_s(pid: int) -> float:
    """Return the seconds of CPU that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S


def peak_bytes(pid: int) -> int:
    """Return the most memory that a process has had resident."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) << 10
    raise ProcessLookupError(pid)


def settle(process: Process, timeout_s: float) -> float:
    """Wait until a process uses next to no CPU; return what it had used by then."""
    last = [cpu_s(process.pid)]

    def is_quiet() -> bool:
        last.append(cpu_s(process.pid))
        return len(last) > _QUIET_POLLS and last[-1] - last[-1 - _QUIET_POLLS] < _QUIET_CPU_S

    eventually(is_quiet, timeout_s=timeout_s, what=f"{process.name} has nothing to do")
    return last[-1]


_QUIET_POLLS: Final = 30  # polls are 0.1 s apart
_QUIET_CPU_S: Final = 0.15
