"""Namespaces in which a Kubernetes node can do what it does to a host and leave no trace.

The first process in them is `python -m devtools.node_init`; when it ends, the kernel ends all others and
takes their mounts and links along. What no namespace covers, the cgroups, lies below one root, and
`remove_cgroups` removes that.
"""

import os
import socket
import time
from collections.abc import Callable
from pathlib import Path

from devtools.process import output

# kubelet writes these, and they are not per namespace.
SYSCTLS = (
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
)
# Folders whose place is compiled into kubelet, containerd or the CNI plugins.
PRIVATE_FOLDERS = ("/run", "/var/log", "/var/lib/kubelet", "/var/lib/cni")
NODE_ADDRESS = "10.199.0.1"
CGROUPS = Path("/sys/fs/cgroup")
COMMAND_TIMEOUT_S = 30


def unshare(command: list[str]) -> list[str]:
    """Return the command that runs `command` as first process of new namespaces; its end ends them all."""
    flags = ["--net", "--mount", "--pid", "--ipc", "--uts", "--fork", "--kill-child", "--mount-proc"]
    return ["/usr/bin/unshare", *flags, "--propagation", "private", "--", *command]


def enter(init_pid: int, command: list[str]) -> list[str]:
    """Return the command that runs `command` in the namespaces of a node's first process."""
    return ["/usr/bin/nsenter", "-t", str(init_pid), "-n", "-m", "-p", "-i", "-u", "--", *command]


def make_mount_points() -> list[Path]:
    """Make, on the host, the folders that something is mounted over; return those that were not there."""
    made = [Path(folder) for folder in PRIVATE_FOLDERS if not Path(folder).exists()]
    for folder in made:
        folder.mkdir(parents=True)
    return made


def make_private(folder: Path, node_name: str) -> None:
    """Give these namespaces their own network, host name, folders and sysctl files, kept below `folder`."""
    socket.sethostname(node_name)
    _ip("link set lo up")
    # Not a dummy device: not every kernel has it. The API server wants a default route.
    _ip("link add up0 type veth peer name up1")
    _ip(f"address add {NODE_ADDRESS}/24 dev up0")
    _ip("link set up0 up")
    _ip("link set up1 up")
    _ip("route add default via 10.199.0.2 dev up0")
    for place in PRIVATE_FOLDERS:
        _bind(folder / place.strip("/").replace("/", "-"), Path(place), is_folder=True)
    for name in SYSCTLS:
        _bind(folder / name.replace("/", "-"), Path("/proc/sys", name), content="0\n")
    hosts = f"127.0.0.1 localhost {node_name}\n"  # kubectl logs and exec need the node's name
    _bind(folder / "hosts", Path("/etc/hosts"), content=hosts)
    _bind(folder / "resolv.conf", Path("/etc/resolv.conf"), content="nameserver 127.0.0.1\n")


def mount_memory(folder: Path) -> None:
    """Put a tmpfs at `folder`, in these namespaces alone."""
    folder.mkdir(exist_ok=True)
    _run("mount", "-t", "tmpfs", "guidedmodel", str(folder))


def make_cgroups(name: str) -> None:
    """Make the root of a node's cgroups in every hierarchy."""
    for hierarchy in _hierarchies():
        (hierarchy / name).mkdir(exist_ok=True)


def remove_cgroups(name: str, timeout_s: float = 20.0) -> None:
    """Remove a node's cgroups, once the kernel has ended the processes in them.

    Raises
    ------
    TimeoutError
        Some process in them still runs.
    """
    deadline = time.monotonic() + timeout_s
    for hierarchy in _hierarchies():
        while not _remove_tree(hierarchy / name):
            if time.monotonic() > deadline:
                raise TimeoutError(f"processes are left in {hierarchy / name}")
            time.sleep(0.05)


def remove_stale_cgroups(prefix: str, is_alive: Callable[[str], bool]) -> None:
    """Remove what nodes killed without `down` left: roots that start so and belong to no living node."""
    for hierarchy in _hierarchies():
        for root in hierarchy.glob(f"{prefix}*"):
            if not is_alive(root.name):
                _remove_tree(root)


def _hierarchies() -> list[Path]:
    """Return all hierarchies' mount points: one where cgroup v2 is alone, else one for each controller."""
    if (CGROUPS / "cgroup.controllers").exists():
        return [CGROUPS]
    with Path("/proc/mounts").open() as mounts:
        fields = [line.split() for line in mounts]
    return [Path(field[1]) for field in fields if field[2] in {"cgroup", "cgroup2"}]


def _remove_tree(root: Path) -> bool:
    """Remove a cgroup and those below it; return whether it is gone."""
    if not root.exists():
        return True
    for folder, _, _ in os.walk(root, topdown=False):
        try:
            Path(folder).rmdir()
        except FileNotFoundError:
            continue
        except OSError:  # busy: a process in it has not ended yet
            return False
    return True


def _bind(source: Path, target: Path, *, is_folder: bool = False, content: str = "") -> None:
    if is_folder:
        source.mkdir(parents=True, exist_ok=True)
    else:
        source.parent.mkdir(parents=True, exist_ok=True)
        source.write_text(content)
    _run("mount", "--bind", str(source), str(target))


def _ip(command: str) -> None:
    _run("ip", *command.split())


def _run(*command: str) -> None:
    output(command, COMMAND_TIMEOUT_S, OSError)
