"""A real one-node Kubernetes on this machine that leaves no trace.

`make cluster` starts it by `start`, as tests do; `python -m devtools.cluster` ends it.
"""

import json
import os
import secrets
import shutil
import signal
import socket
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from devtools import cache, golang, isolation, node, node_init, oci, packages
from devtools.process import Process

UP_TIMEOUT_S = 240.0
STOP_TIMEOUT_S = 30.0
CGROUP_PREFIX = "guidedmodel-"

# What this process started, by process id: only a parent can collect its child.
_started: dict[int, Process] = {}


@dataclass(frozen=True, slots=True)
class NodeCluster:
    """A running cluster, as its state file tells it. `pid`: the one process whose end ends everything."""

    folder: Path
    name: str
    pid: int
    api_port: int
    jaeger_port: int
    made_folders: tuple[str, ...]

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig, good on the host and inside."""
        return self.folder / "admin.kubeconfig"

    @property
    def jaeger_url(self) -> str:
        """Jaeger's query API, for the host."""
        return f"http://127.0.0.1:{self.jaeger_port}"

    @property
    def otlp_endpoint(self) -> str:
        """Jaeger's OTLP receiver, for pods."""
        return f"http://{isolation.NODE_ADDRESS}:{node_init.JAEGER_OTLP_PORT}"

    def import_image(self, archive: Path) -> None:
        """Import an OCI archive into the node's image store."""
        node.import_image(self.folder / "containerd.sock", archive)

    def name_image(self, known: str, name: str) -> None:
        """Give an image of the node's store another name."""
        node.name_image(self.folder / "containerd.sock", known, name)

    def save(self) -> None:
        """Write the state file that `load` reads."""
        self.folder.joinpath("cluster.json").write_text(json.dumps(asdict(self), default=str))


def load(folder: Path) -> NodeCluster | None:
    """Return the cluster whose state is in this folder; None where there is none."""
    try:
        values = json.loads((folder / "cluster.json").read_text())
    except FileNotFoundError:
        return None
    values |= {"folder": Path(values["folder"]), "made_folders": tuple(values["made_folders"])}
    return NodeCluster(**values)


def running(folder: Path) -> NodeCluster | None:
    """Return the cluster of this folder if it runs; tidy up after one that ended by itself."""
    cluster = load(folder)
    if cluster is not None and not _is_alive(cluster.name):
        stop(cluster)
        return None
    return cluster


def build() -> None:
    """Install and build everything that a node needs, once; in its namespaces there is no network for that.

    Raises
    ------
    MissingToolError
        Not root, or a program lacks and cannot be installed.
    """
    packages.ensure(packages.NODE, "a Kubernetes node")
    golang.kubernetes()
    golang.containerd()
    golang.jaeger()
    oci.pause_image()


def start(
    folder: Path, mounts: Sequence[tuple[Path, Path]] = (), *, outlives_us: bool = False
) -> NodeCluster:
    """Start a cluster with its state in an empty folder and wait until its node is Ready.

    `mounts`: what containers see of the host, read-only. Unless `outlives_us`,
    the kernel ends the cluster when this process ends.

    Raises
    ------
    MissingToolError
        Not root, or a program lacks and cannot be installed.
    StartError
        It did not become ready.
    """
    build()
    isolation.remove_stale_cgroups(CGROUP_PREFIX, _is_alive)
    folder.mkdir(parents=True, exist_ok=True)
    name = CGROUP_PREFIX + secrets.token_hex(4)
    made = isolation.make_mount_points()
    isolation.make_cgroups(name)
    with _listener() as api, _listener() as jaeger:
        config = node_init.InitConfig(
            folder=str(folder),
            name=name,
            api_port=api.getsockname()[1],
            api_descriptor=api.fileno(),
            jaeger_descriptor=jaeger.fileno(),
            mounts=[(str(source), str(target)) for source, target in mounts],
        )
        config.write(folder / "init.json")
        # The name is an argument so that `_is_alive` finds it.
        command = [sys.executable, "-m", "devtools.node_init", str(folder / "init.json"), name]
        init = Process.start(
            "node",
            isolation.unshare(command),
            folder / "init.log",
            environment=os.environ | {"PYTHONPATH": str(golang.TOOLS)},
            pass_fds=[api.fileno(), jaeger.fileno()],
            outlives_us=outlives_us,
        )
        ports = (api.getsockname()[1], jaeger.getsockname()[1])
    _started[init.pid] = init
    cluster = NodeCluster(folder, name, init.pid, *ports, tuple(map(str, made)))
    cluster.save()
    try:
        init.wait_ready((folder / "ready").exists, UP_TIMEOUT_S)
    except BaseException:
        stop(cluster)
        raise
    return cluster


def stop(cluster: NodeCluster) -> None:
    """End the cluster: kill its one process, wait for the kernel to end the others, remove their cgroups.

    Its folder stays, with the logs. Stopping what is stopped does nothing.
    """
    first = _processes_of(cluster.name)
    if process := _started.pop(cluster.pid, None):
        process.kill()
    elif first:
        os.kill(cluster.pid, signal.SIGKILL)
    deadline = time.monotonic() + STOP_TIMEOUT_S
    # The first process of a pid namespace ends after all others in it have.
    while not all(map(_has_ended, first)) and time.monotonic() < deadline:
        time.sleep(0.05)
    isolation.remove_cgroups(cluster.name)
    for made in cluster.made_folders:
        if Path(made).exists():
            Path(made).rmdir()
    (cluster.folder / "cluster.json").unlink(missing_ok=True)


def _is_alive(name: str) -> bool:
    return bool(_processes_of(name))


def _has_ended(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return True
    return state in {"X", "Z"}


def _processes_of(name: str) -> list[int]:
    """Return the first process of the node of this name, and the one that started it; none where it ended."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                arguments = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:  # it ended
                continue
            if name.encode() in arguments:
                found.append(int(entry.name))
    return found


def _listener() -> socket.socket:
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(128)
    return listener


def main() -> None:
    """End the cluster whose state lies in the cache."""
    folder = cache.root() / "cluster"
    if cluster := running(folder):
        stop(cluster)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
