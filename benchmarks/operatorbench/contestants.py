"""The two controllers: how each is started with the rights of the operator's account, and what it uses."""

import json
import os
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Final

from devtools import golang
from devtools.process import Process, free_ports, tail

from guided_operator.builders import cluster_site
from guided_operator.kube.queue import Key
from guided_operator.reconcile.observe import Observed
from guided_operator.reconcile.plan import plan
from support.cluster import Cluster
from support.operator_process import START_TIMEOUT_S, eventually, kubeconfig, running
from support.resources import model

PLUGIN_IMAGE: Final = "registry.test/guidedmodel:1"
PLACEHOLDERS: Final = ("placeholder-namespace", "placeholder-model")
_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")

Start = Callable[[Cluster, Path], AbstractContextManager[Process]]


@contextmanager
def ours(cluster: Cluster, folder: Path) -> Iterator[Process]:
    """Run one replica of the operator, as leader."""
    with running(cluster, folder, "operator") as replica:
        eventually(replica.leads, what="the only replica leads")
        yield replica.process


@contextmanager
def rival(cluster: Cluster, folder: Path) -> Iterator[Process]:
    """Run the controller on controller-runtime."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "children.json").write_text(json.dumps(children()))
    health = f"127.0.0.1:{free_ports(1)[0]}"
    process = Process.start(
        "rival",
        [golang.rival() / "rival", f"--children={folder / 'children.json'}", f"--health={health}"],
        folder / "rival.log",
        environment={"KUBECONFIG": str(kubeconfig(cluster, folder / "rival.kubeconfig"))},
    )
    try:
        process.wait_ready(lambda: _answers(f"http://{health}/readyz"), START_TIMEOUT_S)
        yield process
    finally:
        process.stop()


CONTESTANTS: Final[dict[str, Start]] = {"ours": ours, "rival": rival}


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
    """Return what the operator makes of the benchmark's model, under names that the rival replaces."""
    resource = model(*PLACEHOLDERS)
    resource["metadata"] |= {"uid": "placeholder-uid", "generation": 1}
    planned = plan(Observed(Key(*PLACEHOLDERS), resource), cluster_site(PLUGIN_IMAGE))
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


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=1) as response:
            return bool(response.status == 200)
    except OSError:
        return False
