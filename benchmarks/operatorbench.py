"""`make bench-operator`: one replica of the operator with many GuidedModels (N=, IDLE=, CHANGE=, RATE=).

On a real API server and etcd, without controllers, scheduler and kubelet: benchmarks/player (Go) plays all
three, and the users.
"""

import json
import os
import platform
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import commit
from devtools import golang
from devtools.control_plane import Addresses, ControlPlane
from devtools.process import Process
from judged import Bar, table

from guided_contract import status
from support.audit import OPERATOR, Audit
from support.cluster import Cluster
from support.kubelet import ready_page
from support.operator_process import install, running
from support.resources import model
from support.waiting import eventually

NAMESPACE: Final = "bench"
_BARS_COUNT: Final = (
    500  # each owns GPUs; of other numbers the bars of memory, changes and rest are not judged
)
_BARS_RATE: Final = 5
_MIB: Final = 1 << 20
_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
_SETTLE_S: Final = 120.0
_CONVERGE_S: Final = 900.0
_QUIET_POLLS: Final = 30  # 0.1 s apart
_QUIET_CPU_S: Final = 0.15
# Of the operator's requests alone: writing down everybody's would be the API server's main work.
_POLICY: Final = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata", "users": [OPERATOR]}, {"level": "None"}],
}
Report = dict[str, Any]


class Player:
    """The program that plays nodes and users; as a context it ends with it."""

    def __init__(self, folder: Path, kubeconfig: Path) -> None:
        (folder / "model.json").write_text(json.dumps(model(NAMESPACE)))
        (folder / "page.json").write_bytes(status.encode(ready_page()))
        with (folder / "player.log").open("w") as log:
            self._child = subprocess.Popen(
                [
                    *("/usr/bin/setpriv", "--pdeathsig", "KILL", golang.player() / "player"),
                    *("--kubeconfig", kubeconfig, "--namespace", NAMESPACE),
                    *("--model", folder / "model.json", "--page", folder / "page.json"),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        self.wait_for(lambda report: report["event"] == "started", 60)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._child.kill()
        self._child.wait()

    def order(self, what: str, **values: float) -> None:
        """Give an order."""
        assert self._child.stdin is not None
        self._child.stdin.write(json.dumps({"do": what, **values}) + "\n")
        self._child.stdin.flush()

    def wait_for(self, is_wanted: Callable[[Report], bool], timeout_s: float) -> Report:
        """Return the first report of this kind.

        Raises
        ------
        RuntimeError
            It ended, or none came in time.
        """
        assert self._child.stdout is not None
        watchdog = threading.Timer(timeout_s, self._child.kill)
        watchdog.start()
        last: Report | None = None
        for line in self._child.stdout:
            last = json.loads(line)
            if is_wanted(last):
                watchdog.cancel()
                return last
        raise RuntimeError(f"the player ended, or nothing came in {timeout_s:.0f} s, after {last}")


@dataclass(frozen=True, slots=True)
class Stage:
    """The cluster that a run is on, the operator, and who plays nodes and users."""

    cluster: Cluster
    operator: Process
    player: Player

    def cpu_s(self) -> float:
        """Return the seconds of CPU that the operator has used.

        Raises
        ------
        RuntimeError
            It has ended, as one does that lost its Lease.
        """
        if not self.operator.is_running():
            raise RuntimeError(f"the operator ended: see {self.operator.log}")
        fields = Path(f"/proc/{self.operator.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S

    def peak_bytes(self) -> int:
        """Return the most memory that the operator has had resident."""
        lines = Path(f"/proc/{self.operator.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM:"))

    def settle(self) -> None:
        """Wait until the operator uses next to no CPU."""
        seen = [self.cpu_s()]

        def is_quiet() -> bool:
            seen.append(self.cpu_s())
            return len(seen) > _QUIET_POLLS and seen[-1] - seen[-1 - _QUIET_POLLS] < _QUIET_CPU_S

        eventually(is_quiet, timeout_s=_SETTLE_S, what="the operator has nothing to do")


@contextmanager
def stage() -> Iterator[Stage]:
    """Start a control plane, one replica of the operator, which leads, and the player."""
    with tempfile.TemporaryDirectory(prefix="ob") as made, ExitStack() as stack:
        folder = Path(made)
        plane = ControlPlane(folder / "plane", Addresses.free(), audit=_POLICY, controllers=False)
        stack.callback(plane.stop)
        plane.start()
        cluster = Cluster(plane.kubeconfig, plane.addresses.url, plane.programs, plane.logs)
        install(cluster)
        cluster.kubectl("create", "namespace", NAMESPACE)
        player = stack.enter_context(Player(folder, plane.kubeconfig))
        replica = stack.enter_context(running(cluster, folder / "operator", "operator"))
        eventually(replica.leads, what="the only replica leads")
        yield Stage(cluster, replica.process, player)


def converge(at: Stage, count: int, judged: list[Bar]) -> list[str]:
    """Make models and wait until all are Ready; return the lines that tell of it."""
    audit, used_s = Audit(at.cluster), at.cpu_s()
    at.player.order("create", count=count)
    began = at.player.wait_for(lambda report: report["event"] == "creating", 10)["at"]
    all_ready = {"event": "ready", "count": count}.items()
    ready = at.player.wait_for(lambda report: all_ready <= report.items(), _CONVERGE_S)
    used_s = at.cpu_s() - used_s
    at.settle()  # what it still asks for counts too
    asked = Counter(f"{each.verb} {each.resource}" for each in audit.entries() if each.resource != "leases")
    each = asked.total() / count
    memory_mib = at.peak_bytes() / _MIB
    judged.append(Bar("at most 20 API requests for each model", f"{each:.2f}", each <= 20))
    if count == _BARS_COUNT:
        judged.append(Bar("500 models: memory at most 256 MiB", f"{memory_mib:.0f} MiB", memory_mib <= 256))
    return [
        f"{count:,} models: Ready after {ready['at'] - began:.1f} s, {used_s:.1f} s of CPU",
        f"{memory_mib:.0f} MiB at most, {each:.2f} requests each",
        f"requests: {', '.join(f'{number} {what}' for what, number in sorted(asked.items()))}",
    ]


def change(at: Stage, count: int, rate: float, judged: list[Bar]) -> str:
    """Change single models at this rate; return how long until Deployments were changed."""
    seconds, used_s = float(os.environ.get("CHANGE") or 30), at.cpu_s()
    at.player.order("change", rate=rate, seconds=seconds)
    found = at.player.wait_for(lambda report: report["event"] == "changed", seconds + 60)
    used_s = at.cpu_s() - used_s
    at.settle()
    p99, missed, sent = found["p99"] or float("inf"), found["missed"], found["sent"]
    if count == _BARS_COUNT and rate == _BARS_RATE:
        asks = "500 models, 5 changes a second: acted on in p99 < 1 s"
        judged.append(Bar(asks, f"{p99:.2f} s, {missed} of {sent} missed", p99 < 1 and not missed))
    return (
        f"{rate:g} changes a second: acted on after p50 {found['p50']:.3f} s, p99 {p99:.3f} s, at most "
        f"{found['max']:.3f} s, {missed} of {sent} missed, {1000 * used_s / sent:.1f} ms of CPU each"
    )


def idle(at: Stage, count: int, judged: list[Bar]) -> str:
    """Do nothing; return the line that tells what that costs."""
    # Longer than the longest pause between two looks at a ready pod's page.
    seconds = float(os.environ.get("IDLE") or 200)
    audit, used_s = Audit(at.cluster), at.cpu_s()
    time.sleep(seconds)
    share, writes = (at.cpu_s() - used_s) / seconds, len(audit.writes())
    if count == _BARS_COUNT:
        asks = "500 models: idle below 2 % of a core, no write"
        judged.append(Bar(asks, f"{share:.2%}, {writes} writes", share < 0.02 and not writes))
    return f"idle: {share:.2%} of a core, {writes} writes in {seconds:.0f} s"


def main() -> int:
    """Measure, print, and return 1 where a bar is missed."""
    count, rate = int(os.environ.get("N") or _BARS_COUNT), float(os.environ.get("RATE") or _BARS_RATE)
    load, judged = os.getloadavg()[0], list[Bar]()
    with stage() as at:
        lines = converge(at, count, judged)
        lines += [change(at, count, rate, judged), idle(at, count, judged)]
    about = (
        f"commit {commit.name()}, {os.cpu_count()} cores, load before {load:.1f}, "
        f"Kubernetes {golang.KUBERNETES}, Python {platform.python_version()}"
    )
    print("\n\n".join([about, *lines, "\n".join(table(judged))]))
    return 1 if any(bar.met is False for bar in judged) else 0


if __name__ == "__main__":
    sys.exit(main())
