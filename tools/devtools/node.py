"""A real Kubernetes node: containerd, kubelet and kube-proxy, started inside its namespaces."""

import ipaddress
import json
import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from devtools import dns, golang, isolation, oci
from devtools.control_plane import NODE_NAME, POD_RANGE, ControlPlane
from devtools.process import Process

READY_TIMEOUT_S = 120.0
CNI_PLUGINS = Path("/usr/lib/cni")


@dataclass(frozen=True, slots=True)
class NodeConfig:
    """What one node is made of. Its containers see `mounts`, (source, target), read-only."""

    cgroup_root: str
    mounts: Sequence[tuple[Path, Path]] = ()


class Node:
    """The node's three programs, their configuration and data below one folder."""

    def __init__(self, folder: Path, config: NodeConfig, plane: ControlPlane) -> None:
        self._folder = folder
        self._config = config
        self._plane = plane
        self._containerd = golang.containerd()
        self.socket = folder / "containerd.sock"
        self._processes: list[Process] = []
        self._path = os.pathsep.join([str(self._containerd), "/usr/sbin:/usr/bin:/sbin:/bin"])

    def start(self) -> None:
        """Start everything and wait until the node is Ready.

        Raises
        ------
        StartError
            A program ended or was not ready in time.
        """
        runtime = self._run("containerd", [self._containerd / "containerd", "-c", self._containerd_config()])
        runtime.wait_ready(lambda: not _ctr(self.socket, "version").returncode, READY_TIMEOUT_S)
        import_image(self.socket, oci.pause_image())
        kubelet = self._run("kubelet", [self._plane.programs / "kubelet", *self._kubelet_flags()])
        proxy = self._plane.programs / "kube-proxy"
        self._run(
            "kube-proxy", [proxy, f"--config={self._proxy_config()}", f"--hostname-override={NODE_NAME}"]
        )
        kubelet.wait_ready(self._is_ready, READY_TIMEOUT_S)

    @property
    def processes(self) -> tuple[Process, ...]:
        """The running programs."""
        return tuple(self._processes)

    def _is_ready(self) -> bool:
        path = '{.status.conditions[?(@.type=="Ready")].status}'
        return self._kubectl("get", f"node/{NODE_NAME}", f"-o=jsonpath={path}").stdout == "True"

    def _kubectl(self, *args: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(  # noqa: S603 - a program of ours
            [self._plane.programs / "kubectl", f"--kubeconfig={self._plane.kubeconfig}", *args],
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )

    def _run(self, name: str, command: Sequence[str | Path]) -> Process:
        environment = os.environ | {"PATH": self._path}
        process = Process.start(name, command, self._plane.logs / f"{name}.log", environment=environment)
        self._processes.append(process)
        return process

    def _write(self, name: str, content: dict[str, Any]) -> Path:
        path = self._folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(content, indent=1))  # JSON is YAML
        return path

    def _containerd_config(self) -> Path:
        subnet = str(next(ipaddress.ip_network(POD_RANGE).subnets(new_prefix=24)))
        network = {
            "cniVersion": "1.0.0",
            "name": "bridge",
            "plugins": [
                {
                    "type": "bridge",
                    "bridge": "cni0",
                    "isGateway": True,
                    "hairpinMode": True,
                    "ipam": {
                        "type": "host-local",
                        "ranges": [[{"subnet": subnet}]],
                        "routes": [{"dst": "0.0.0.0/0"}],
                    },
                },
                {"type": "portmap", "capabilities": {"portMappings": True}},
            ],
        }
        self._write("cni/10-bridge.conflist", network)
        runc = {"runtime_type": "io.containerd.runc.v2", "base_runtime_spec": str(self._runtime_spec())}
        runtime = {
            "restrict_oom_score_adj": True,  # without CAP_SYS_RESOURCE it cannot be lowered
            "containerd": {
                "snapshotter": self._snapshotter(),
                "default_runtime_name": "runc",
                "runtimes": {"runc": runc},
            },
            "cni": {"bin_dirs": [str(CNI_PLUGINS)], "conf_dir": str(self._folder / "cni")},
        }
        images = {"snapshotter": self._snapshotter(), "pinned_images": {"sandbox": oci.PAUSE}}
        config = {
            "version": 3,
            "root": str(self._folder / "containerd/root"),
            "state": str(self._folder / "containerd/state"),
            "grpc": {"address": str(self.socket)},
            "plugins": {"io.containerd.cri.v1.images": images, "io.containerd.cri.v1.runtime": runtime},
        }
        path = self._folder / "containerd.toml"
        path.write_text(_toml(config))
        return path

    def _snapshotter(self) -> str:
        """Return overlayfs, or the slow copier where the folder lies on an overlay itself."""
        probe = self._folder / "overlay-probe"
        for name in ("lower", "upper", "work", "merged"):
            (probe / name).mkdir(parents=True, exist_ok=True)
        options = f"lowerdir={probe}/lower,upperdir={probe}/upper,workdir={probe}/work"
        mount = ["mount", "-t", "overlay", "overlay", "-o", options, str(probe / "merged")]
        if subprocess.run(mount, capture_output=True, timeout=30, check=False).returncode:  # noqa: S603 - mount
            return "native"
        subprocess.run(["umount", str(probe / "merged")], timeout=30, check=True)  # noqa: S603, S607 - umount
        return "overlayfs"

    def _runtime_spec(self) -> Path:
        """Write the specification that containers start from: containerd's plus the mounts.

        So a pod sees the engine's environment without an image of gigabytes, as it sees a GPU's driver.
        """
        made = subprocess.run(  # noqa: S603 - a program of ours
            [self._containerd / "ctr", "oci", "spec"], capture_output=True, timeout=30, check=True
        )
        spec = json.loads(made.stdout)
        for source, target in self._config.mounts:
            mount = {"source": str(source), "destination": str(target), "type": "bind"}
            spec["mounts"].append(mount | {"options": ["rbind", "ro"]})
        return self._write("runtime-spec.json", spec)

    def _kubelet_flags(self) -> list[str]:
        hosts = ["127.0.0.1", NODE_NAME, isolation.NODE_ADDRESS]
        server = self._plane.authority.issue("kubelet-server", NODE_NAME, hosts=hosts)
        node = self._plane.user("node", f"system:node:{NODE_NAME}", group="system:nodes")
        config = {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "authentication": {
                "anonymous": {"enabled": False},
                "x509": {"clientCAFile": str(self._plane.authority.certificate)},
                "webhook": {"enabled": True},
            },
            "authorization": {"mode": "Webhook"},
            "cgroupDriver": "cgroupfs",
            "failCgroupV1": False,
            "failSwapOn": False,
            # A change of a ConfigMap reaches its pods with this, by default once a minute: tests wait for it.
            "syncFrequency": "10s",
            "cgroupRoot": f"/{self._config.cgroup_root}",
            "containerRuntimeEndpoint": f"unix://{self.socket}",
            "tlsCertFile": str(server.certificate),
            "tlsPrivateKeyFile": str(server.key),
            "clusterDNS": [isolation.NODE_ADDRESS],
            "clusterDomain": dns.DOMAIN.removeprefix("svc."),
            "volumePluginDir": str(self._folder / "volume-plugins"),
            # A full disk of the machine is no reason to evict a test's pods.
            "evictionHard": {
                "memory.available": "100Mi",
                "nodefs.available": "1%",
                "imagefs.available": "1%",
            },
            "imageGCHighThresholdPercent": 100,
            # One image has several names here, pulled and imported; none of them needs credentials.
            "imagePullCredentialsVerificationPolicy": "NeverVerify",
        }
        return [
            f"--kubeconfig={node}",
            f"--config={self._write('kubelet.yaml', config)}",
            f"--hostname-override={NODE_NAME}",
            f"--node-ip={isolation.NODE_ADDRESS}",
            f"--root-dir={self._folder / 'kubelet'}",
        ]

    def _proxy_config(self) -> Path:
        config = {
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
            "kind": "KubeProxyConfiguration",
            "clientConnection": {"kubeconfig": str(self._plane.user("proxy", "system:kube-proxy"))},
            "clusterCIDR": POD_RANGE,
            "mode": "iptables",
            # These sysctls are the machine's, not the namespace's: leave them alone.
            "conntrack": {
                "maxPerCore": 0,
                "min": 0,
                "tcpEstablishedTimeout": "0s",
                "tcpCloseWaitTimeout": "0s",
            },
            "healthzBindAddress": "127.0.0.1:10256",
            "metricsBindAddress": "127.0.0.1:10249",
        }
        return self._write("proxy.yaml", config)


def import_image(socket: Path, archive: Path) -> None:
    """Import an OCI archive into the containerd that listens on `socket`; works from the host, too.

    Raises
    ------
    OSError
        containerd refused it.
    """
    done = _ctr(socket, "-n", "k8s.io", "images", "import", str(archive), timeout_s=300)
    if done.returncode:
        raise OSError(f"{archive} cannot be imported: {done.stderr}")


def name_image(socket: Path, known: str, name: str) -> None:
    """Give an image another name, as if it had been pulled by that one."""
    done = _ctr(socket, "-n", "k8s.io", "images", "tag", "--force", known, name)
    if done.returncode:
        raise OSError(f"{known} cannot be named {name}: {done.stderr}")


def _ctr(socket: Path, *args: str, timeout_s: float = 30) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # noqa: S603 - a program of ours
        [golang.containerd() / "ctr", "-a", socket, *args],
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )


def _toml(config: dict[str, Any], prefix: str = "") -> str:
    """Write the little TOML that containerd needs: tables of texts, numbers, booleans and lists of texts."""
    lines = [f"[{prefix}]"] if prefix else []
    tables = []
    for name, value in config.items():
        if isinstance(value, dict):
            tables.append(_toml(value, f"{prefix}.{json.dumps(name)}" if prefix else json.dumps(name)))
        else:
            lines.append(f"{name} = {json.dumps(value)}")
    return "\n".join([*lines, *tables]) + "\n"
