"""The real operator as a process, with the rights of its service account, for tests on a real API server."""

import base64
import json
import os
import signal
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml
from devtools.process import Process, free_ports, tail
from prometheus_client.parser import text_string_to_metric_families

from support.cluster import Cluster
from support.waiting import eventually

ROOT = Path(__file__).resolve().parents[2]
CRD = ROOT / "manifests/crd/guidedmodels.guidedmodel.io.yaml"
RBAC = ROOT / "charts/guidedmodel/files/rbac.yaml"
POLICY = RBAC.with_name("admission-policy.yaml")
USERS = RBAC.with_name("users.yaml")
NAMESPACE = "guidedmodel-system"
ACCOUNT = "guidedmodel-operator"
START_TIMEOUT_S = 60.0


def install_crd(cluster: Cluster) -> None:
    """Install the CRD, and wait until the API server serves the kind."""
    cluster.kubectl("apply", "--server-side", "-f", str(CRD))
    eventually(lambda: cluster.serves("guidedmodels.guidedmodel.io"), what="the CRD is served")


def install(cluster: Cluster) -> None:
    """Install CRD, rights and the policy on them."""
    install_crd(cluster)
    if NAMESPACE not in cluster.kubectl("get", "namespaces", "-o", "name"):
        cluster.kubectl("create", "namespace", NAMESPACE)
    cluster.apply(RBAC)
    cluster.apply(POLICY)


def kubeconfig(cluster: Cluster, path: Path) -> Path:
    """Write a kubeconfig that has the operator's rights and no others, with a token of its own."""
    token = cluster.kubectl("create", "token", ACCOUNT, "-n", NAMESPACE, "--duration=2h").strip()
    config = yaml.safe_load(cluster.kubeconfig.read_text())
    config["users"] = [{"name": config["users"][0]["name"], "user": {"token": token}}]
    path.write_text(yaml.safe_dump(config))
    path.chmod(0o600)
    return path


def _credential(kubeconfig: Path) -> str:
    token = yaml.safe_load(kubeconfig.read_text())["users"][0]["user"]["token"]
    claims = token.split(".")[1]
    return f"JTI={json.loads(base64.urlsafe_b64decode(claims + '=' * (-len(claims) % 4)))['jti']}"


class Operator:
    """One replica."""

    def __init__(self, process: Process, health: str, credential: str) -> None:
        self.process = process
        self.credential = credential  # which the API server's audit log knows its token by
        self._health = health

    def log(self) -> str:
        """Return all that it logged."""
        return self.process.log.read_text()

    def is_ready(self) -> bool:
        """Say whether /readyz answers 200."""
        try:
            with urllib.request.urlopen(f"{self._health}/readyz", timeout=1) as response:
                return bool(response.status == 200)
        except OSError:
            return False

    def metrics(self) -> str:
        """Return its page of metrics."""
        with urllib.request.urlopen(f"{self._health}/metrics", timeout=5) as response:
            text: str = response.read().decode()
            return text

    def figure(self, name: str, **labels: str) -> float:
        """Return the sum of its samples of this name, of those that have these labels."""
        families = text_string_to_metric_families(self.metrics())
        return sum(
            sample.value
            for family in families
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        )

    def leads(self) -> bool:
        """Say whether it has taken the Lease."""
        return "this replica is the leader" in self.log()

    def send(self, number: signal.Signals) -> None:
        """Send it a signal."""
        os.kill(self.process.pid, number)

    def end(self, number: signal.Signals) -> int:
        """Send it a signal that makes it end, and return its exit status."""
        self.send(number)
        return self.ended()

    def ended(self) -> int:
        """Wait until it has ended, and return its exit status."""
        eventually(lambda: not self.process.is_running(), what="the operator ends")
        status: int = self.process._child.returncode
        return status


@contextmanager
def running(
    cluster: Cluster, folder: Path, name: str, *, waits: bool = True, **environment: str
) -> Iterator[Operator]:
    """Run a replica while the context lasts, once it is ready if that is waited for; it must log no bug."""
    folder.mkdir(parents=True, exist_ok=True)
    [port] = free_ports(1)
    access = kubeconfig(cluster, folder / f"{name}.kubeconfig")
    # Not the installed command: releases before this one, which PYTHONPATH may name, begin elsewhere.
    program = (sys.executable, "-c", "from guided_operator.main import main; main()")
    settings = {
        "KUBECONFIG": str(access),
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "POD_NAME": name,
        "POD_NAMESPACE": NAMESPACE,
        "GUIDEDMODEL_PLUGIN_IMAGE": "registry.test/guidedmodel:1",
        "GUIDEDMODEL_HEALTH_HOST": "127.0.0.1",
        "GUIDEDMODEL_HEALTH_PORT": str(port),
        **environment,
    }
    process = Process.start(name, program, folder / f"{name}.log", environment=settings)
    operator = Operator(process, f"http://127.0.0.1:{port}", _credential(access))
    try:
        if waits:
            process.wait_ready(operator.is_ready, START_TIMEOUT_S)
        yield operator
        assert "this is a bug" not in operator.log(), tail(process.log)
        assert "Traceback" not in operator.log(), tail(process.log)
    finally:
        process.stop()
