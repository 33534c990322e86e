"""What a phase leaves behind: processes, files, shared memory, sockets and open descriptors."""

import collections
import dataclasses
import os
import time
from pathlib import Path
from typing import Final

from support.pod import Pod
from support.sidecar import descendants

SETTLE_S: Final = 15.0
_STEADY_S: Final = 1.5
_SHARED_MEMORY: Final = Path("/dev/shm")
_LISTENS: Final = "0A"  # in /proc/net/tcp
_KINDS: Final = ("socket", "pidfd", "memfd", "pipe", "eventpoll")


@dataclasses.dataclass(frozen=True, slots=True)
class Belongings:
    """What a pod has at one moment.

    Parameters
    ----------
    processes
        All but the grammar service, its template and its workers.
    workers
        How many processes the service has, the template included.
    dead
        Those that nobody has reaped.
    files
        In the run folder, but for the grammars themselves.
    shared
        In shared memory, all of the machine's that no process has mapped.
    descriptors
        Of the service, by kind.
    """

    processes: frozenset[int]
    workers: int
    dead: frozenset[int]
    files: frozenset[str]
    shared: frozenset[str]
    descriptors: dict[str, int]

    @classmethod
    def of(cls, pod: Pod) -> "Belongings":
        sidecar = pod.sidecar
        service = sidecar.service_pid()
        below = set(descendants(service)) if service else set()
        run = Path(pod.config.run_dir)
        return cls(
            processes=frozenset(pod.processes() - below),
            workers=len(below) - 1,
            dead=frozenset(pid for pid in descendants(pod.child.pid) if _is_dead(pid)),
            files=frozenset(str(path.relative_to(run)) for path in run.rglob("*")),
            shared=_unmapped(),
            descriptors=_descriptors(service) if service else {},
        )

    def beyond(self, before: "Belongings") -> list[str]:
        """Say what is here that was not there before."""
        found = {
            "processes": self.processes - before.processes,
            "dead processes": self.dead,
            "files": self.files - before.files,
            "shared memory": self.shared - before.shared,
        }
        said = [f"{name}: {', '.join(sorted(map(str, more)))}" for name, more in found.items() if more]
        counts = {"workers": (before.workers, self.workers)}
        counts |= {kind: (before.descriptors.get(kind, 0), self.descriptors.get(kind, 0)) for kind in _KINDS}
        said += [f"{name}: {old} -> {new}" for name, (old, new) in counts.items() if new > old]
        return said


def settled(pod: Pod) -> Belongings:
    """Return what a pod has once that stays the same for a moment: workers are forked as others go."""
    deadline = time.monotonic() + SETTLE_S
    last, since = Belongings.of(pod), time.monotonic()
    while time.monotonic() < min(deadline, since + _STEADY_S):
        time.sleep(0.3)
        before, last = last, Belongings.of(pod)
        if (before.workers, before.descriptors) != (last.workers, last.descriptors):
            since = time.monotonic()
    return last


def left_behind(pod: Pod, before: Belongings) -> list[str]:
    """Return what a phase has left behind once all has had time to settle; [] is as it should be."""
    deadline = time.monotonic() + SETTLE_S
    while found := Belongings.of(pod).beyond(before):
        if time.monotonic() > deadline:
            return found
        time.sleep(0.2)
    return []


def _unmapped() -> frozenset[str]:
    """Return what is in shared memory for nobody; what others on the machine use is theirs.

    By inode: a semaphore is linked to its name after it was mapped, and maps show the name before.
    """
    found = {entry.inode(): entry.name for entry in os.scandir(_SHARED_MEMORY)}
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                lines = (process / "maps").read_text(errors="replace").splitlines()
            except OSError:
                continue
            for line in lines:
                if f"{_SHARED_MEMORY}/" in line:
                    found.pop(int(line.split(maxsplit=5)[4]), None)
    return frozenset(found.values())


def _is_dead(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return False


def _descriptors(pid: int) -> dict[str, int]:
    kinds: collections.Counter[str] = collections.Counter()
    inodes = set()
    for link in Path(f"/proc/{pid}/fd").iterdir():
        try:
            target = os.readlink(link)  # noqa: PTH115 - not a path
        except OSError:
            continue
        kinds.update(kind for kind in _KINDS if kind in target)
        inodes.add(target.removeprefix("socket:[").removesuffix("]"))
    kinds["socket"] -= len(_asked(pid, inodes))
    return dict(kinds)


def _asked(pid: int, inodes: set[str]) -> set[str]:
    """Return whom a process asks over TCP: with each, one connection may be kept for the next time."""
    lines = Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]
    sockets = [line.split() for line in lines if line.split()[9] in inodes]
    listening = {local.split(":")[1] for _, local, _, state, *_ in sockets if state == _LISTENS}
    return {
        remote
        for _, local, remote, state, *_ in sockets
        if state != _LISTENS and local.split(":")[1] not in listening
    }
