"""One run: a fresh control plane, so many models."""

import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from devtools.control_plane import Addresses, ControlPlane
from devtools.process import Process

from operatorbench import audit, controller
from operatorbench.player import NAMESPACE, Player
from operatorbench.records import Changed, Converged, Idle, Restarted, Run
from support.cluster import Cluster
from support.operator_process import install

_SETTLE_S: Final = 120.0


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


def measure(wanted: Wanted, conditions: str) -> Run:
    """Return the figures of one run."""
    with tempfile.TemporaryDirectory(prefix="ob") as made, ExitStack() as stack:
        folder = Path(made)
        plane = stack.enter_context(_control_plane(folder))
        cluster = Cluster(plane.kubeconfig, plane.addresses.url, plane.programs, plane.logs)
        install(cluster)
        cluster.kubectl("create", "namespace", NAMESPACE)
        player = stack.enter_context(Player.start(folder, plane.kubeconfig))
        with controller.started(cluster, folder / "first") as process:
            run = Run(wanted.count, conditions, _converge(wanted, plane, player, process))
            for rate in wanted.rates:
                run.changes.append(_change(wanted, rate, plane, player, process))
                controller.demand_running(process)
            if wanted.idle_s:
                run.idle = _idle(wanted, plane, process)
                controller.demand_running(process)
        if wanted.restart:
            run.restarted = _restart(cluster, plane, folder)
        return run


@contextmanager
def _control_plane(folder: Path) -> Iterator[ControlPlane]:
    plane = ControlPlane(folder / "plane", Addresses.free(), audit=audit.policy(), controllers=False)
    plane.start()
    try:
        yield plane
    finally:
        plane.stop()


def _converge(wanted: Wanted, plane: ControlPlane, player: Player, process: Process) -> Converged:
    used = _Used(plane, player, process)
    asked_before = len(_requests(plane))
    player.order("create", count=wanted.count)
    began = player.wait_for(lambda report: report["event"] == "creating", 10)["at"]
    created = player.wait_for(lambda report: report["event"] == "created", wanted.converge_timeout_s)["at"]
    ready = player.wait_for(
        lambda report: report["event"] == "ready" and report["count"] == wanted.count,
        wanted.converge_timeout_s,
    )["at"]
    cpu_s = used.cpu_s()
    controller.settle(process, _SETTLE_S)  # what it still asks for counts too
    asked = _requests(plane)[asked_before:]
    made = sorted(each.answered for each in asked if each.verb == "create" and each.code == 201)
    expected = wanted.count * len(controller.children())
    if len(made) != expected:
        raise RuntimeError(f"{len(made)} children were made instead of {expected}")
    return Converged(
        children_s=made[-1] - began,
        ready_s=ready - began,
        created_s=created - began,
        cpu_s=cpu_s,
        peak_bytes=controller.peak_bytes(process.pid),
        requests=audit.by_verb(asked),
    )


class _Used:
    """CPU seconds of each process from now on."""

    def __init__(self, plane: ControlPlane, player: Player, process: Process) -> None:
        etcd, api = plane.processes
        self._pids = {
            "operator": process.pid,
            "API server": api.pid,
            "etcd": etcd.pid,
            "player": player.pid,
        }
        self._before = {name: controller.cpu_s(pid) for name, pid in self._pids.items()}

    def cpu_s(self) -> dict[str, float]:
        return {name: controller.cpu_s(pid) - self._before[name] for name, pid in self._pids.items()}


def _change(wanted: Wanted, rate: float, plane: ControlPlane, player: Player, process: Process) -> Changed:
    used, asked_before, began = _Used(plane, player, process), len(_requests(plane)), time.monotonic()
    player.order("change", rate=rate, seconds=wanted.change_s)
    found = player.wait_for(lambda report: report["event"] == "changed", wanted.change_s + 60)
    took_s, cpu_s = time.monotonic() - began, used.cpu_s()
    asked = _requests(plane)[asked_before:]
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
        requests=audit.by_verb(asked),
    )


def _idle(wanted: Wanted, plane: ControlPlane, process: Process) -> Idle:
    before, asked_before, began = controller.cpu_s(process.pid), len(_requests(plane)), time.monotonic()
    time.sleep(wanted.idle_s)
    took = time.monotonic() - began
    used = controller.cpu_s(process.pid) - before
    return Idle(took, used, audit.by_verb(_requests(plane)[asked_before:]))


def _restart(cluster: Cluster, plane: ControlPlane, folder: Path) -> Restarted:
    asked_before = len(_requests(plane))
    with controller.started(cluster, folder / "second") as process:
        used = controller.settle(process, _SETTLE_S)
        asked = _requests(plane)[asked_before:]
        return Restarted(
            cpu_s=used,
            peak_bytes=controller.peak_bytes(process.pid),
            requests=audit.by_verb(asked),
            writes=sum(each.is_write for each in asked),
        )


def _requests(plane: ControlPlane) -> list[audit.Request]:
    return [each for each in audit.read(plane.audit_log) if not each.is_lease]
