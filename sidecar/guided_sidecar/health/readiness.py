"""Whether a pod is ready, decided from one reading of everything.

A chain of checks, each named after a problem, returns what a platform engineer should read about it, or "".
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from guided_contract import fingerprint
from guided_contract.config import PodConfig
from guided_contract.reasons import NotReadyReason
from guided_contract.status import DraftsStatus, Failure, ProbeStatus
from guided_contract.wire import Hello, Role
from guided_sidecar.health.heartbeats import EngineState
from guided_sidecar.socket.snapshot import ServiceSnapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """Everything that a verdict depends on."""

    config: PodConfig
    snapshot: ServiceSnapshot
    engine: EngineState
    probe: ProbeStatus
    probe_failure: Failure | None = None
    probe_passed: bool = False  # once since the engine started
    draining: bool = False
    processor_failures: Mapping[str, int] = field(default_factory=dict)  # sequences, by logits processor
    drafts: DraftsStatus = field(default_factory=DraftsStatus)
    node: int = 0  # which of its replica's pods this is

    @property
    def boot(self) -> str:
        """The running engine start's name; "" while no launcher is connected."""
        return boot_of(self.snapshot)

    @property
    def hellos(self) -> tuple[Hello, ...]:
        """The hellos of this engine start; a dying predecessor's connections do not count.

        Those of other nodes have engine starts of their own, which their own sidecars follow.
        """
        return tuple(hello for hello in self.snapshot.hellos if hello.node or hello.boot == self.boot)

    @property
    def ranks(self) -> frozenset[int]:
        """The connected ranks that sample."""
        return frozenset(
            hello.rank
            for hello in self.hellos
            if hello.role == "rank" and hello.samples and hello.rank is not None
        )

    def launcher(self) -> Hello | None:
        """Return the newest launcher's hello."""
        return _launcher(self.snapshot)


class Verdict(NamedTuple):
    """What /readyz says; `reason` and `message` as in status.PodStatus, empty when ready."""

    ready: bool
    reason: str = ""
    message: str = ""


def boot_of(snapshot: ServiceSnapshot) -> str:
    """Return the running engine start's name; "" while no launcher is connected."""
    launcher = _launcher(snapshot)
    return launcher.boot if launcher else ""


def judge(reading: Reading) -> Verdict:
    """Return the first problem, or ready.

    With placement Scheduler, vLLM's own path serves guided requests: only its engine and the probe count.
    A node that is not its replica's first has ranks and no more.
    """
    checks = _CHECKS[reading.config.guided_decoding.placement, reading.node > 0]
    for reason, check in checks:
        if message := check(reading):
            return Verdict(False, reason, message)
    return Verdict(True)


def exhausted(snapshot: ServiceSnapshot) -> str:
    """Return why new grammars are refused, "" if they are not; unguided and known requests are served."""
    if not snapshot.exhausted:
        return ""
    return "grammar workers crashed too often; new grammars are refused until the restart budget is restored"


def draining(reading: Reading) -> str:
    """Check that the pod was not told to stop."""
    return "the pod is stopping and finishes its in-flight requests" if reading.draining else ""


def launcher_missing(reading: Reading) -> str:
    """Check that the engine's container has started and has not ended."""
    return "" if reading.launcher() else "the engine's launcher is not connected to the sidecar"


def vllm_unsupported(reading: Reading) -> str:
    """Check that the launcher knows this vLLM; else it left it untouched."""
    launcher = reading.launcher()
    return launcher.unsupported if launcher else ""


def patches_failed(reading: Reading) -> str:
    """Check that all changes to vLLM were made; without one, something is not enforced."""
    failed = {
        f"{patch.name} in the {hello.role} process ({patch.reason})"
        for hello in reading.hellos
        for patch in hello.patches
        if patch.state == "Failed"
    }
    return f"changes to vLLM failed: {', '.join(sorted(failed))}" if failed else ""


def processes_missing(reading: Reading) -> str:
    """Check that API server and engine core have loaded the plugin; a starting engine's have not."""
    present = {hello.role for hello in reading.hellos}
    missing = [name for role, name in _PROCESSES if role not in present]
    return f"the plugin has not reported from {' and '.join(missing)}" if missing else ""


def tokenizers_differ(reading: Reading) -> str:
    """Check that every rank has the tokenizer that grammars are compiled for."""
    ours = reading.snapshot.workers.tokenizer
    others = [hello for hello in reading.hellos if fingerprint.differing(ours, hello.tokenizer)]
    if not others:
        return ""
    ranks = ", ".join(sorted(f"rank {hello.rank}" for hello in others))
    theirs = others[0].tokenizer
    (backend, *_) = fingerprint.differing(ours, theirs)
    here, there = ours[backend][:_SHOWN], theirs[backend][:_SHOWN]
    return f"vLLM uses a different tokenizer than the sidecar on {ranks}: {there} there, {here} here"


def ranks_missing(reading: Reading) -> str:
    """Check that every sampling rank is connected."""
    expected = reading.snapshot.expected_ranks
    missing = sorted(set(expected) - reading.ranks)
    if not missing:
        return ""
    return f"{len(missing)} of {len(expected)} ranks are not connected: {', '.join(map(str, missing))}"


def ranks_unlinked(reading: Reading) -> str:
    """Check that the first node's sidecar knows the ranks of this one."""
    unlinked = ", ".join(map(str, sorted(reading.snapshot.unlinked)))
    return f"not connected to the sidecar of the first node: rank {unlinked}" if unlinked else ""


def workers_silent(reading: Reading) -> str:
    """Check that all workers of this node write heartbeats."""
    return "" if reading.engine.running else "not all ranks of this node write heartbeats yet"


def heartbeats_missing(reading: Reading) -> str:
    """Check that the engine core, which has said hello, writes heartbeats."""
    return "" if reading.engine.running else "the engine core writes no heartbeats"


def engine_stalled(reading: Reading) -> str:
    """Check that waiting requests make steps and no process is silent."""
    return reading.engine.stall


def grammars_pending(reading: Reading) -> str:
    """Check that there has been a grammar worker, and that the named grammars are compiled and loaded."""
    snapshot = reading.snapshot
    if not snapshot.workers.forks:  # later, a pod without workers serves what it has
        return exhausted(snapshot) or "the grammar workers are starting"
    awaited = [grammar for grammar in snapshot.grammars if grammar.name in snapshot.awaited_grammars]
    if not awaited:
        return ""
    named = ", ".join(f"{one.name} ({one.reason})" if one.reason else one.name for one in awaited)
    return f"{len(awaited)} of {len(snapshot.grammars)} named grammars are not loaded yet: {named}"


def probe_pending(reading: Reading) -> str:
    """Check that a guided request was answered since the engine started."""
    if reading.probe.state not in {"Pending", "Busy"}:
        return ""
    return reading.probe.message or "the guided probe has not passed yet"


def probe_failed(reading: Reading) -> str:
    """Check that the guided request was not answered wrongly, or not at all.

    Once it was answered well, probes.guided.onFailure says what a failure means.
    """
    if reading.probe_passed and reading.config.probes.guided.on_failure == "Report":
        return ""
    return reading.probe.message if reading.probe.state == "Failed" else ""


# Of a fingerprint: the number of tokens and enough of the hash to tell two apart.
_SHOWN: Final = 24
_Check = Callable[[Reading], str]
_PROCESSES: Final[tuple[tuple[Role, str], ...]] = (("api", "the API server"), ("core", "the engine core"))
_RANK_CHECKS: Final[tuple[tuple[NotReadyReason, _Check], ...]] = (
    (NotReadyReason.DRAINING, draining),
    (NotReadyReason.PLUGIN_INACTIVE, launcher_missing),
    (NotReadyReason.PLUGIN_INACTIVE, vllm_unsupported),
    (NotReadyReason.PLUGIN_INACTIVE, patches_failed),
    (NotReadyReason.PLUGIN_INACTIVE, processes_missing),
    (NotReadyReason.TOKENIZERS_DIFFER, tokenizers_differ),
    (NotReadyReason.RANKS_MISSING, ranks_missing),
    (NotReadyReason.ENGINE_STALLED, heartbeats_missing),
    (NotReadyReason.ENGINE_STALLED, engine_stalled),
    (NotReadyReason.GRAMMARS_PENDING, grammars_pending),
    (NotReadyReason.PROBE_PENDING, probe_pending),
    (NotReadyReason.PROBE_FAILED, probe_failed),
)
_SCHEDULER_CHECKS: Final[tuple[tuple[NotReadyReason, _Check], ...]] = (
    (NotReadyReason.DRAINING, draining),
    (NotReadyReason.PLUGIN_INACTIVE, launcher_missing),
    (NotReadyReason.ENGINE_STALLED, engine_stalled),
    (NotReadyReason.PROBE_PENDING, probe_pending),
    (NotReadyReason.PROBE_FAILED, probe_failed),
)


_NODE_CHECKS: Final[tuple[tuple[NotReadyReason, _Check], ...]] = (
    (NotReadyReason.DRAINING, draining),
    (NotReadyReason.PLUGIN_INACTIVE, launcher_missing),
    (NotReadyReason.PLUGIN_INACTIVE, vllm_unsupported),
    (NotReadyReason.PLUGIN_INACTIVE, patches_failed),
    (NotReadyReason.RANKS_MISSING, ranks_missing),
    (NotReadyReason.RANKS_MISSING, ranks_unlinked),
    (NotReadyReason.ENGINE_STALLED, workers_silent),
    (NotReadyReason.ENGINE_STALLED, engine_stalled),
)
_SCHEDULER_NODE_CHECKS: Final[tuple[tuple[NotReadyReason, _Check], ...]] = (
    (NotReadyReason.DRAINING, draining),
    (NotReadyReason.PLUGIN_INACTIVE, launcher_missing),
    (NotReadyReason.ENGINE_STALLED, workers_silent),
    (NotReadyReason.ENGINE_STALLED, engine_stalled),
)
# By placement, and whether another pod is the replica's first.
_CHECKS: Final[Mapping[tuple[str, bool], tuple[tuple[NotReadyReason, _Check], ...]]] = {
    ("Rank", False): _RANK_CHECKS,
    ("Rank", True): _NODE_CHECKS,
    ("Scheduler", False): _SCHEDULER_CHECKS,
    ("Scheduler", True): _SCHEDULER_NODE_CHECKS,
}


def _launcher(snapshot: ServiceSnapshot) -> Hello | None:
    return next((hello for hello in reversed(snapshot.hellos) if hello.role == "launcher"), None)
