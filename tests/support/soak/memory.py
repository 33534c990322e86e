"""Resident memory of a pod's processes, by what they are."""

from pathlib import Path

from support.pod import Pod
from support.sidecar import serves

_NAMES = (
    (b"VLLM::Worker", "rank"),
    (b"VLLM::EngineCore", "engine core"),
    (b"guided_engine.launcher", "launcher"),
    (b"vllm.entrypoints", "API server"),
    (b"guided_sidecar.grammar.compile.fork_server", "grammar template or worker"),
    (b"\0guided_sidecar\0", "sidecar's supervisor"),
)


Resident = dict[int, tuple[str, int]]


def resident(pod: Pod) -> Resident:
    """Return name and resident MiB of each process, by its id; guards and helpers left out."""
    found = {}
    for pid in pod.processes():
        try:
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
            status = Path(f"/proc/{pid}/status").read_text()
        except OSError:
            continue
        name = next((name for part, name in _NAMES if part in command), None)
        if serves(pid):
            name = "sidecar's service"
        lines = [line for line in status.splitlines() if line.startswith("VmRSS:")]
        if name is not None and b"guard.py" not in command and lines:
            found[pid] = (name, int(lines[0].split()[1]) >> 10)
    return found


def growth(before: Resident, after: Resident) -> list[tuple[str, int, int]]:
    """Return name, MiB before and MiB after of every process that lived all the time."""
    lived = sorted((after[pid][0], pid) for pid in before.keys() & after.keys())
    return [(f"{name} {pid}", before[pid][1], after[pid][1]) for name, pid in lived]
