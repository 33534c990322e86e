"""A real Kubernetes control plane: etcd, API server, controller manager, scheduler. Needs no root."""

import json
import ssl
import tempfile
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from devtools import golang, pki
from devtools.process import Process, StartError, free_ports

READY_TIMEOUT_S = 60.0
SERVICE_RANGE = "10.96.0.0/16"
POD_RANGE = "10.244.0.0/16"
KUBERNETES_SERVICE_IP = "10.96.0.1"
NODE_NAME = "node1"
# Who asked for what, and what came of it: what tests say of writes is read there. The control plane's own
# programs only where they write.
AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {"level": "None", "users": ["system:apiserver"]},
        {"level": "None", "nonResourceURLs": ["/*"]},
        {
            "level": "None",
            "users": ["system:kube-controller-manager", "system:kube-scheduler"],
            "verbs": ["get", "list", "watch"],
        },
        {
            "level": "None",
            "userGroups": ["system:serviceaccounts:kube-system"],
            "verbs": ["get", "list", "watch"],
        },
        {"level": "Metadata"},
    ],
}
DEFAULT_ACCOUNT = "/api/v1/namespaces/default/serviceaccounts/default"


@dataclass(frozen=True, slots=True)
class Addresses:
    """Where the control plane listens. Pods reach the API server by `advertise`; None: there are no pods."""

    etcd: int
    etcd_peer: int
    api: int
    controllers: int
    scheduler: int
    bind: str = "127.0.0.1"
    advertise: str | None = None

    @classmethod
    def free(cls) -> "Addresses":
        """Choose ports that are free on this machine's loopback."""
        etcd, etcd_peer, api, controllers, scheduler = free_ports(5)
        return cls(etcd, etcd_peer, api, controllers, scheduler)

    @property
    def url(self) -> str:
        """The API server's address on this machine."""
        return f"https://127.0.0.1:{self.api}"


def _memory() -> Path | None:
    shared = Path("/dev/shm")  # noqa: S108 - a folder of our own is made in it
    return shared if shared.is_dir() else None


class ControlPlane:
    """The four programs, their keys and logs below one folder.

    Parameters
    ----------
    data
        etcd's folder, best in memory: a machine that writes gigabytes elsewhere stalls etcd for seconds, and
        leaders then lose their Leases. None: a temporary one in memory, removed by `stop`.
    audit
        The audit policy.
    controllers
        Without them nobody makes ReplicaSets, pods and accounts, collects garbage, or schedules.
    """

    def __init__(
        self,
        folder: Path,
        addresses: Addresses,
        *,
        data: Path | None = None,
        audit: Mapping[str, Any] = AUDIT_POLICY,
        controllers: bool = True,
    ) -> None:
        self.folder = folder
        self.addresses = addresses
        self.programs = golang.kubernetes()
        self.logs = folder / "logs"
        self.logs.mkdir(parents=True, exist_ok=True)
        self.authority = pki.Authority(folder / "pki")
        self.kubeconfig = self.user("admin", "admin", group="system:masters")
        self._processes: list[Process] = []
        self._data = data
        self._audit = audit
        self._controllers = controllers
        self._memory: tempfile.TemporaryDirectory[str] | None = None

    def user(self, name: str, common_name: str, *, group: str | None = None) -> Path:
        """Return a kubeconfig for a user of this name and these groups."""
        pair = self.authority.issue(name, common_name, group=group)
        path = self.folder / f"{name}.kubeconfig"
        return pki.kubeconfig(path, self.addresses.url, self.authority.certificate, pair)

    def start(self) -> None:
        """Start everything and wait until a pod could be created.

        Raises
        ------
        StartError
            A program ended or was not ready in time; the message holds the end of its log.
        """
        try:
            self._start()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop all programs, the API server's clients first."""
        for process in reversed(self._processes):
            process.stop()
        self._processes.clear()
        if self._memory is not None:
            self._memory.cleanup()
            self._memory = None

    def restart_api_server(self) -> None:
        """Kill the API server, start it anew, and wait until it answers.

        Raises
        ------
        StartError
            It ended or was not ready in time.
        """
        [old] = [process for process in self._processes if process.name == "kube-apiserver"]
        old.kill()
        new = self._launch("kube-apiserver", self._api_options)
        self._processes[self._processes.index(old)] = new
        new.wait_ready(self._is_answering, READY_TIMEOUT_S)

    @property
    def audit_log(self) -> Path:
        """The API server's audit log, a JSON object per line."""
        return self.logs / "audit.log"

    @property
    def processes(self) -> tuple[Process, ...]:
        """The running programs."""
        return tuple(self._processes)

    def is_healthy(self) -> bool:
        """Return whether all programs run."""
        return bool(self._processes) and all(process.is_running() for process in self._processes)

    def get(self, path: str) -> tuple[int, bytes]:
        """Return status and body of a GET to the API server as admin; status 0 where nobody answers."""
        context = ssl.create_default_context(cafile=str(self.authority.certificate))
        context.load_cert_chain(self.folder / "pki/admin.crt", self.folder / "pki/admin.key")
        try:
            with urllib.request.urlopen(  # noqa: S310 - always https
                self.addresses.url + path, timeout=5, context=context
            ) as answer:
                return int(answer.status), answer.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()
        except OSError:
            return 0, b""

    def _start(self) -> None:
        self._run("etcd", self._etcd_flags())
        # The API server retries until etcd answers, so nothing waits for etcd by itself.
        self._api_options = self._api_flags()
        self._run("kube-apiserver", self._api_options).wait_ready(self._is_answering, READY_TIMEOUT_S)
        if self._controllers:
            controllers = self._run("kube-controller-manager", self._controller_flags())
            self._run("kube-scheduler", self._scheduler_flags())
            controllers.wait_ready(lambda: self.get(DEFAULT_ACCOUNT)[0] == 200, READY_TIMEOUT_S)
        if not self.is_healthy():
            dead = next(process for process in self._processes if not process.is_running())
            raise StartError(f"{dead.name} ended; see {dead.log}")

    def _run(self, program: str, flags: dict[str, object]) -> Process:
        self._processes.append(self._launch(program, flags))
        return self._processes[-1]

    def _launch(self, program: str, flags: dict[str, object]) -> Process:
        command = [self.programs / program, *(f"--{name}={value}" for name, value in flags.items())]
        return Process.start(program, [str(part) for part in command], self.logs / f"{program}.log")

    def _is_answering(self) -> bool:
        return self.get("/readyz")[0] == 200

    def _data_folder(self) -> Path:
        if self._data is not None:
            return self._data
        self._memory = tempfile.TemporaryDirectory(prefix="guidedmodel-etcd-", dir=_memory())
        return Path(self._memory.name)

    def _etcd_flags(self) -> dict[str, object]:
        client = f"http://127.0.0.1:{self.addresses.etcd}"
        peer = f"http://127.0.0.1:{self.addresses.etcd_peer}"
        return {
            "data-dir": self._data_folder(),
            "listen-client-urls": client,
            "advertise-client-urls": client,
            "listen-peer-urls": peer,
            "initial-advertise-peer-urls": peer,
            "initial-cluster": f"default={peer}",
            "unsafe-no-fsync": "true",  # throw-away data
            "log-level": "warn",
        }

    def _api_flags(self) -> dict[str, object]:
        hosts = ["127.0.0.1", KUBERNETES_SERVICE_IP, "localhost", "kubernetes.default.svc"]
        if self.addresses.advertise:
            hosts.append(self.addresses.advertise)
        server = self.authority.issue("apiserver", "kube-apiserver", hosts=hosts)
        kubelet = self.authority.issue("kubelet-client", "apiserver-kubelet-client", group="system:masters")
        proxy = self.authority.issue("front-proxy", "front-proxy-client")
        self._service_key = self.authority.service_account_key()
        policy = self.folder / "audit-policy.json"
        policy.write_text(json.dumps(self._audit))
        flags: dict[str, object] = {
            "etcd-servers": f"http://127.0.0.1:{self.addresses.etcd}",
            "bind-address": self.addresses.bind,
            "secure-port": self.addresses.api,
            "advertise-address": self.addresses.advertise or "127.0.0.1",
            "tls-cert-file": server.certificate,
            "tls-private-key-file": server.key,
            "client-ca-file": self.authority.certificate,
            "service-account-key-file": self._service_key,
            "service-account-signing-key-file": self._service_key,
            "service-account-issuer": "https://kubernetes.default.svc",
            "service-cluster-ip-range": SERVICE_RANGE,
            "authorization-mode": "Node,RBAC",
            "allow-privileged": "true",
            "kubelet-client-certificate": kubelet.certificate,
            "kubelet-client-key": kubelet.key,
            "kubelet-certificate-authority": self.authority.certificate,
            # Who it speaks for to the API servers behind it (APIService).
            "proxy-client-cert-file": proxy.certificate,
            "proxy-client-key-file": proxy.key,
            "requestheader-client-ca-file": self.authority.certificate,
            "requestheader-allowed-names": "front-proxy-client",
            "requestheader-username-headers": "X-Remote-User",
            "requestheader-group-headers": "X-Remote-Group",
            "requestheader-extra-headers-prefix": "X-Remote-Extra-",
            "audit-policy-file": policy,
            "audit-log-path": self.audit_log,
            "audit-log-maxsize": 10_000,  # MiB: tests read one file
        }
        if not self.addresses.advertise:
            flags["endpoint-reconciler-type"] = "none"  # nobody is to reach it by the kubernetes service
        return flags

    def _controller_flags(self) -> dict[str, object]:
        return {
            "kubeconfig": self.user("controllers", "system:kube-controller-manager"),
            "bind-address": "127.0.0.1",
            "secure-port": self.addresses.controllers,
            "service-account-private-key-file": self._service_key,
            "root-ca-file": self.authority.certificate,
            "leader-elect": "false",
            "use-service-account-credentials": "true",
            "allocate-node-cidrs": "true",
            "cluster-cidr": POD_RANGE,
            "horizontal-pod-autoscaler-sync-period": "2s",  # 15 s otherwise, which tests wait for
        }

    def _scheduler_flags(self) -> dict[str, object]:
        return {
            "kubeconfig": self.user("scheduler", "system:kube-scheduler"),
            "bind-address": "127.0.0.1",
            "secure-port": self.addresses.scheduler,
            "leader-elect": "false",
        }
