"""One run: a fresh control plane, so many models."""

import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from devtools.control_plane import Addresses, ControlPlane
from devtools.process import Process

from operatorbench import controller
from operatorbench.player import NAMESPACE, Player
from operatorbench.records import Changed, Converged, Idle, Restarted, Run
from support.audit import OPERATOR, Audit, Entry
from support.cluster import Cluster
from support.operator_process import install

_SETTLE_S: Final = 120.0
# Of the operator's requests alone: writing down everybody's would be the API server's main work.
_POLICY: Final = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata", "users": [OPERATOR]}, {"level": "None"}],
}


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is measured, beside how long it takes to converge; 0 seconds: not that.

    `rates`: of changes a second, each for `change_s`, one after the other.
    """

    count: int
    change_s: float = 0.0
    rates: Sequence[float] = ()
    idle_s: float = 0.0
    restart: bool = False
    converge_timeout_s: float = 900.0


@dataclass(frozen=True, slots=True)
class Stage:
    """The cluster that a run is on, and who plays its nodes and users."""

    cluster: Cluster
    plane: ControlPlane
    player: Player


def measure(wanted: Wanted, conditions: str) -> Run:
    """Return the figures of one run."""
    with tempfile.TemporaryDirectory(prefix="ob") as made, ExitStack() as stack:
        folder = Path(made)
        plane = stack.enter_context(_control_plane(folder))
        cluster = Cluster(plane.kubeconfig, plane.addresses.url, plane.programs, plane.logs)
        install(cluster)
        cluster.kubectl("create", "namespace", NAMESPACE)
        stage = Stage(cluster, plane, stack.enter_context(Player.start(folder, plane.kubeconfig)))
        with controller.started(cluster, folder / "first") as process:
            run = Run(wanted.count, conditions, _converge(wanted, stage, process))
            for rate in wanted.rates:
                run.changes.append(_change(wanted, rate, stage, process))
                controller.demand_running(process)
            if wanted.idle_s:
                run.idle = _idle(wanted, cluster, process)
                controller.demand_running(process)
        if wanted.restart:
            run.restarted = _restart(cluster, folder)
        return run


@contextmanager
def _control_plane(folder: Path) -> Iterator[ControlPlane]:
    plane = ControlPlane(folder / "plane", Addresses.free(), audit=_POLICY, controllers=False)
    plane.start()
    try:
        yield plane
    finally:
        plane.stop()


def _converge(wanted: Wanted, stage: Stage, process: Process) -> Converged:
    used, audit = _Used(stage, process), Audit(stage.cluster)
    stage.player.order("create", count=wanted.count)
    began = stage.player.wait_for(lambda report: report["event"] == "creating", 10)["at"]
    created = stage.player.wait_for(lambda report: report["event"] == "created", wanted.converge_timeout_s)[
        "at"
    ]
    ready = stage.player.wait_for(
        lambda report: report["event"] == "ready" and report["count"] == wanted.count,
        wanted.converge_timeout_s,
    )["at"]
    cpu_s = used.cpu_s()
    controller.settle(process, _SETTLE_S)  # what it still asks for counts too
    entries = audit.entries()
    made = sorted(each.went.timestamp() for each in entries if each.verb == "create" and each.code == 201)
    expected = wanted.count * len(controller.children())
    if len(made) != expected:
        raise RuntimeError(f"{len(made)} children were made instead of {expected}")
    return Converged(
        children_s=made[-1] - began,
        ready_s=ready - began,
        created_s=created - began,
        cpu_s=cpu_s,
        peak_bytes=controller.peak_bytes(process.pid),
        requests=_by_verb(entries),
    )


class _Used:
    """CPU seconds of each process from now on."""

    def __init__(self, stage: Stage, process: Process) -> None:
        etcd, api = stage.plane.processes
        self._pids = {
            "operator": process.pid,
            "API server": api.pid,
            "etcd": etcd.pid,
            "player": stage.player.pid,
        }
        self._before = {name: controller.cpu_s(pid) for name, pid in self._pids.items()}

    def cpu_s(self) -> dict[str, float]:
        return {name: controller.cpu_s(pid) - self._before[name] for name, pid in self._pids.items()}


def _change(wanted: Wanted, rate: float, stage: Stage, process: Process) -> Changed:
    used, audit, began = _Used(stage, process), Audit(stage.cluster), time.monotonic()
    stage.player.order("change", rate=rate, seconds=wanted.change_s)
    found = stage.player.wait_for(lambda report: report["event"] == "changed", wanted.change_s + 60)
    took_s, cpu_s = time.monotonic() - began, used.cpu_s()
    requests = _by_verb(audit.entries())
    controller.settle(process, _SETTLE_S)
    return Changed(
        rate=rate,
        sent=found["sent"],
        missed=found["missed"],
        p50=found["p50"],
        p99=found["p99"],
        max=found["max"],
        seconds=took_s,
        cpu_s=cpu_s,
        requests=requests,
    )


def _idle(wanted: Wanted, cluster: Cluster, process: Process) -> Idle:
    before, audit, began = controller.cpu_s(process.pid), Audit(cluster), time.monotonic()
    time.sleep(wanted.idle_s)
    took = time.monotonic() - began
    used = controller.cpu_s(process.pid) - before
    return Idle(took, used, _by_verb(audit.entries()))


def _restart(cluster: Cluster, folder: Path) -> Restarted:
    audit = Audit(cluster)
    with controller.started(cluster, folder / "second") as process:
        used = controller.settle(process, _SETTLE_S)
        return Restarted(
            cpu_s=used,
            peak_bytes=controller.peak_bytes(process.pid),
            requests=_by_verb(audit.entries()),
            writes=len(audit.writes()),
        )


def _by_verb(entries: Iterable[Entry]) -> dict[str, int]:
    """Return how many requests there were of each verb and resource; without the Lease's."""
    asked = (f"{each.verb} {each.resource}" for each in entries if each.resource != "leases")
    return dict(sorted(Counter(asked).items()))
