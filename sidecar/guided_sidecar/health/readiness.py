"""Whether a pod is ready, decided from one reading of everything.

A chain of checks, each named after a problem, returns what a platform engineer should read about it, or "".
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from guided_contract import fingerprint
from guided_contract.config import PodConfig
from guided_contract.status import DraftsStatus, Failure, NotReadyReason
from guided_contract.wire import Role
from guided_sidecar.health.engine_state import EngineState
from guided_sidecar.health.probe import ProbeStatus
from guided_sidecar.socket.snapshot import ServiceSnapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """Everything that a verdict depends on."""

    config: PodConfig
    snapshot: ServiceSnapshot
    engine: EngineState
    probe: ProbeStatus
    probe_failure: Failure | None = None
    draining: bool = False
    processor_failures: Mapping[str, int] = field(default_factory=dict)  # sequences, by logits processor
    matchers_restarts: Mapping[int, int] = field(default_factory=dict)  # by rank
    drafts: DraftsStatus = field(default_factory=DraftsStatus)
    node: int = 0  # which of its replica's pods this is


class Verdict(NamedTuple):
    """What /readyz says; `reason` and `message` as in status.PodStatus, empty when ready."""

    ready: bool
    reason: str = ""
    message: str = ""


def judge(reading: Reading) -> Verdict:
    """Return the first problem, or ready.

    With placement Scheduler, vLLM's own path serves guided requests: only its engine and the probe count.
    A node that is not its replica's first has ranks and no more.
    """
    pod = reading.config.guided_decoding.placement, "node" if reading.node else "first"
    for reason, check, pods in _CHECKS:
        if {*pods} <= {*pod} and (message := check(reading)):
            return Verdict(False, reason, message)
    return Verdict(True)


def exhausted(snapshot: ServiceSnapshot) -> str:
    """Return why new grammars are refused, "" if they are not; unguided and known requests are served."""
    if not snapshot.exhausted:
        return ""
    return "grammar workers crashed too often; new grammars are refused until there is one again"


def _draining(reading: Reading) -> str:
    return "the pod is stopping and finishes its in-flight requests" if reading.draining else ""


def _launcher_missing(reading: Reading) -> str:
    return "" if reading.snapshot.launcher else "the engine's launcher is not connected to the sidecar"


def _vllm_unsupported(reading: Reading) -> str:
    launcher = reading.snapshot.launcher
    return launcher.unsupported if launcher else ""


def _patches_failed(reading: Reading) -> str:
    failed = {
        f"{patch.name} in the {hello.role} process ({patch.reason})"
        for hello in reading.snapshot.current
        for patch in hello.patches
        if patch.state == "Failed"
    }
    return f"changes to vLLM failed: {', '.join(sorted(failed))}" if failed else ""


def _processes_missing(reading: Reading) -> str:
    present = {hello.role for hello in reading.snapshot.current}
    missing = [name for role, name in _PROCESSES.items() if role not in present]
    return f"the plugin has not reported from {' and '.join(missing)}" if missing else ""


def _tokenizers_differ(reading: Reading) -> str:
    ours = reading.snapshot.workers.tokenizer
    others = [hello for hello in reading.snapshot.current if fingerprint.differing(ours, hello.tokenizer)]
    if not others:
        return ""
    ranks = ", ".join(sorted(f"rank {hello.rank}" for hello in others))
    theirs = others[0].tokenizer
    (backend, *_) = fingerprint.differing(ours, theirs)
    here, there = ours[backend][:_SHOWN], theirs[backend][:_SHOWN]
    return f"vLLM uses a different tokenizer than the sidecar on {ranks}: {there} there, {here} here"


def _ranks_missing(reading: Reading) -> str:
    expected = reading.snapshot.expected_ranks
    missing = ", ".join(str(rank) for rank in expected if rank not in reading.snapshot.ranks)
    count = missing.count(",") + 1
    return f"{count} of {len(expected)} ranks are not connected: {missing}" if missing else ""


def _ranks_unlinked(reading: Reading) -> str:
    unlinked = ", ".join(map(str, sorted(reading.snapshot.unlinked)))
    return f"not connected to the sidecar of the first node: rank {unlinked}" if unlinked else ""


def _heartbeats_missing(reading: Reading) -> str:
    if reading.engine.running or _vllm_unsupported(reading):  # one that is left untouched writes none
        return ""
    who = "not all ranks of this node" if reading.node else "not all engine cores"
    return f"{who} write heartbeats yet"


def _engine_stalled(reading: Reading) -> str:
    return reading.engine.stall


def _grammars_pending(reading: Reading) -> str:
    snapshot = reading.snapshot
    if not snapshot.workers.forks:  # later, a pod without workers serves what it has
        return exhausted(snapshot) or "the grammar workers are starting"
    awaited = [grammar for grammar in snapshot.grammars if grammar.name in snapshot.awaited_grammars]
    if not awaited:
        return ""
    named = ", ".join(f"{one.name} ({one.reason})" if one.reason else one.name for one in awaited)
    return f"{len(awaited)} of {len(snapshot.grammars)} named grammars are not loaded yet: {named}"


def _probe_pending(reading: Reading) -> str:
    if reading.probe.state not in {"Pending", "Busy"}:
        return ""
    return reading.probe.message or "the guided probe has not passed yet"


def _probe_failed(reading: Reading) -> str:
    return reading.probe.message if reading.probe.state == "Failed" else ""


# Of a fingerprint: the number of tokens and enough of the hash to tell two apart.
_SHOWN: Final = 24
_PROCESSES: Final[Mapping[Role, str]] = {"api": "the API server", "core": "the engine core"}
# In this order, and which pods each is for: by placement, and whether it is its replica's first.
_CHECKS: Final[tuple[tuple[NotReadyReason, Callable[[Reading], str], tuple[str, ...]], ...]] = (
    (NotReadyReason.DRAINING, _draining, ()),
    (NotReadyReason.PLUGIN_INACTIVE, _launcher_missing, ()),
    (NotReadyReason.PLUGIN_INACTIVE, _vllm_unsupported, ("Rank",)),
    (NotReadyReason.PLUGIN_INACTIVE, _patches_failed, ("Rank",)),
    (NotReadyReason.PLUGIN_INACTIVE, _processes_missing, ("Rank", "first")),
    (NotReadyReason.TOKENIZERS_DIFFER, _tokenizers_differ, ("Rank", "first")),
    (NotReadyReason.RANKS_MISSING, _ranks_missing, ("Rank",)),
    (NotReadyReason.RANKS_MISSING, _ranks_unlinked, ("Rank", "node")),
    (NotReadyReason.ENGINE_STALLED, _heartbeats_missing, ("node",)),
    (NotReadyReason.ENGINE_STALLED, _heartbeats_missing, ("Rank", "first")),
    (NotReadyReason.ENGINE_STALLED, _engine_stalled, ()),
    (NotReadyReason.GRAMMARS_PENDING, _grammars_pending, ("Rank", "first")),
    (NotReadyReason.PROBE_PENDING, _probe_pending, ("first",)),
    (NotReadyReason.PROBE_FAILED, _probe_failed, ("first",)),
)
