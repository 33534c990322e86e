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

from operatorbench import controller, crowd
from operatorbench.player import NAMESPACE, Player
from operatorbench.records import Changed, Converged, Idle, Restarted, Run, Storm
from support.audit import OPERATOR, Audit, Entry
from support.cluster import Cluster
from support.operator_process import ACCOUNT, RBAC, install

_SETTLE_S: Final = 120.0
_BACK_TRIES: Final = 4  # of half a minute each
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

    `rates`: of changes a second, each for `change_s`, one after the other. `revisions`: of each model, when
    the operator is restarted. `foreign`: ConfigMaps of others. `storm_s`: refusals after the restart.
    """

    count: int
    revisions: int = 1
    foreign: int = 0
    storm_s: float = 0.0
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
        crowd.add_foreign(cluster.kubeconfig, NAMESPACE, wanted.foreign)
        stage = Stage(cluster, plane, stack.enter_context(Player.start(folder, plane.kubeconfig)))
        with controller.started(cluster, folder / "first") as process:
            run = Run(wanted.count, conditions, _converge(wanted, stage, process))
            run.revisions, run.foreign = wanted.revisions, wanted.foreign
            for rate in wanted.rates:
                run.changes.append(_change(wanted, rate, stage, process))
                controller.demand_running(process)
            if wanted.idle_s:
                run.idle = _idle(wanted, cluster, process)
                controller.demand_running(process)
        if wanted.revisions > 1:
            crowd.add_history(cluster.kubeconfig, NAMESPACE, wanted.revisions - 1)
        if wanted.restart:
            audit = Audit(cluster)
            with controller.started(cluster, folder / "second") as process:
                run.restarted = _restarted(audit, process)
                if wanted.storm_s:
                    run.storm = _storm(wanted, stage, process)
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
    made = sorted(each.went.timestamp() for each in entries if each.code == 201)
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


def _restarted(audit: Audit, process: Process) -> Restarted:
    used = controller.settle(process, _SETTLE_S)
    return Restarted(
        cpu_s=used,
        peak_bytes=controller.peak_bytes(process.pid),
        requests=_by_verb(audit.entries()),
        writes=len(audit.writes()),
    )


def _storm(wanted: Wanted, stage: Stage, process: Process) -> Storm:
    """Take the operator's rights away, but those to its Lease, and restart the API server.

    That is what one does that has not read yet who may what: it answers 403.
    """
    audit = Audit(stage.cluster)
    stage.cluster.kubectl("delete", "clusterrolebinding", ACCOUNT)
    stage.plane.restart_api_server()
    time.sleep(wanted.storm_s)
    stage.cluster.apply(RBAC)
    refused = sum(each.code == 403 for each in audit.entries())
    began = time.monotonic()
    changed = _act_on_a_change(stage.player)
    back_s = time.monotonic() - began
    controller.demand_running(process)
    entries = audit.entries()
    told = {each.name for each in entries if each.resource == "guidedmodels/status"}
    return Storm(
        seconds=wanted.storm_s,
        refused=refused,
        status_writes=max(len(told) - changed, 0),
        events=sum(each.resource == "events" and each.is_write for each in entries),
        back_s=back_s,
        peak_bytes=controller.peak_bytes(process.pid),
    )


def _act_on_a_change(player: Player) -> int:
    """Change models until a change is acted on; return how many were changed."""
    changed = 0
    for _ in range(_BACK_TRIES):
        player.order("change", rate=1.0, seconds=1.0)
        found = player.wait_for(lambda report: report["event"] == "changed", 60)
        changed += int(found["sent"])
        if found["missed"] == 0:
            return changed
    raise RuntimeError(f"no change is acted on after the storm: {found}")


def _by_verb(entries: Iterable[Entry]) -> dict[str, int]:
    """Return how many requests there were of each verb and resource; without the Lease's."""
    asked = (f"{each.verb} {each.resource}" for each in entries if each.resource != "leases")
    return dict(sorted(Counter(asked).items()))
