"""What was measured, kept in a file so that a run goes on where the last one stopped."""

from pathlib import Path

import msgspec


class Converged(msgspec.Struct):
    """From the first GuidedModel's creation until the last was Ready. `cpu_s` by process."""

    children_s: float
    ready_s: float
    created_s: float  # the users' part of it
    cpu_s: dict[str, float]
    peak_bytes: int
    requests: dict[str, int]  # without the Lease's


class Idle(msgspec.Struct):
    """A while with nothing to do."""

    seconds: float
    cpu_s: float
    requests: dict[str, int]


class Changed(msgspec.Struct):
    """So many changes of single models a second: from a change's sending until the child was seen changed.

    `cpu_s` by process and `requests`: until the last one was acted on, or no longer waited for.
    """

    rate: float
    sent: int
    missed: int
    p50: float
    p99: float
    max: float
    seconds: float
    cpu_s: dict[str, float]
    requests: dict[str, int]


class Restarted(msgspec.Struct):
    """A new process with everything as it should be: until it has nothing to do."""

    cpu_s: float
    peak_bytes: int
    requests: dict[str, int]
    writes: int


class Storm(msgspec.Struct):
    """An API server that restarts, and then refuses the operator everything but its Lease for a while.

    `status_writes`: models whose status was written though nobody changed them, `events`: those posted; both
    until a change was acted on again, `back_s` after the rights were back.
    """

    seconds: float
    refused: int
    status_writes: int
    events: int
    back_s: float
    peak_bytes: int


class Run(msgspec.Struct):
    """So many models, on a control plane of its own.

    `revisions`: of each model, when the operator is restarted; `foreign`: ConfigMaps of 1 MiB.
    """

    count: int
    conditions: str
    converged: Converged
    idle: Idle | None = None
    changes: list[Changed] = []
    restarted: Restarted | None = None
    storm: Storm | None = None
    revisions: int = 1
    foreign: int = 0


def load(path: Path) -> list[Run]:
    """Return the runs of a file, none if it is not there."""
    return msgspec.json.decode(path.read_bytes(), type=list[Run]) if path.exists() else []


def save(path: Path, runs: list[Run]) -> None:
    """Write the file."""
    path.write_bytes(msgspec.json.format(msgspec.json.encode(runs)))
