"""What a machine is like: everything that a Kubernetes node could leave behind on it."""

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from devtools.cluster import CGROUP_PREFIX

# These change by themselves.
RESTLESS = (
    "random",
    "ns_last_pid",
    "pty/nr",
    "_count",
    "dentry",
    "inode",
    "file-nr",
    "/sched_domain",
    "/usermodehelper",
)
FOLDERS = (
    "/run",
    "/var/lib/cni",
    "/var/lib/kubelet",
    "/var/log",
    "/etc/cni",
    "/opt/cni",
    "/etc/kubernetes",
    "/usr/libexec",
)


@dataclass(frozen=True, slots=True)
class HostState:
    """A machine at one moment."""

    links: frozenset[str]
    iptables: str
    sysctls: frozenset[tuple[str, bytes]]
    mounts: frozenset[str]
    cgroups: frozenset[str]
    files: frozenset[str]

    @classmethod
    def now(cls) -> "HostState":
        """Look at this machine."""
        return cls(
            links=frozenset(link.name for link in Path("/sys/class/net").iterdir()),
            iptables=_iptables(),
            sysctls=frozenset(_sysctls()),
            mounts=frozenset(Path("/proc/self/mountinfo").read_text().splitlines()),
            cgroups=frozenset(_folders(Path("/sys/fs/cgroup"))),
            files=frozenset(entry for folder in FOLDERS for entry in _entries(Path(folder))),
        )

    def difference(self, before: "HostState") -> dict[str, list[str]]:
        """Return what is new or gone since `before`, by kind; empty where nothing is.

        Cgroups of nodes that were there before come and go with their pods, and do not count.
        """
        found = {
            name: sorted(map(str, getattr(self, name) ^ getattr(before, name)))
            for name in ("links", "sysctls", "mounts", "cgroups", "files")
        }
        others = {node_of(path) for path in before.cgroups} - {""}
        found["cgroups"] = [path for path in found["cgroups"] if node_of(path) not in others]
        if self.iptables != before.iptables:
            found["iptables"] = [before.iptables, self.iptables]
        return {name: changes for name, changes in found.items() if changes}


def node_of(cgroup: str) -> str:
    """Return the name of the node that a cgroup belongs to, "" for the machine's own."""
    return next((part for part in cgroup.split("/") if part.startswith(CGROUP_PREFIX)), "")


def namespaces(pid: int) -> dict[str, int]:
    """Return the inode of each namespace of a process, by kind."""
    return {
        kind: Path(f"/proc/{pid}/ns/{kind}").stat().st_ino for kind in ("net", "mnt", "pid", "ipc", "uts")
    }


def processes_in(wanted: dict[str, int]) -> list[str]:
    """Return the command lines of processes that are in any of these namespaces."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                here = namespaces(int(entry.name))
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:  # it ended
                continue
            if any(here[kind] == inode for kind, inode in wanted.items()):
                found.append(f"{entry.name} {command}")
    return found


def _iptables() -> str:
    done = subprocess.run(["iptables-save"], capture_output=True, text=True, timeout=30, check=False)
    return "\n".join(line for line in done.stdout.splitlines() if not line.startswith("#"))


def _sysctls() -> list[tuple[str, bytes]]:
    found = []
    for top in ("kernel", "net", "vm"):
        for folder, _, names in os.walk(f"/proc/sys/{top}"):
            for name in names:
                path = f"{folder}/{name}"
                if any(word in path for word in RESTLESS):
                    continue
                try:
                    found.append((path, Path(path).read_bytes()))
                except OSError:  # write-only, or not for this kernel
                    continue
    return found


def _folders(root: Path) -> list[str]:
    return [folder for folder, _, _ in os.walk(root)]


def _entries(folder: Path) -> list[str]:
    """Return what a folder holds, two levels deep, and the folder itself."""
    if not folder.exists():
        return []
    found = [str(folder), *map(str, folder.glob("*")), *map(str, folder.glob("*/*"))]
    return [path for path in found if not path.startswith("/run/shm/")]  # engines of other tests come and go
