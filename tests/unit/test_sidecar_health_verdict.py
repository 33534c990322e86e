"""The verdict over a pod's readiness, the heartbeats it rests on, and the status page."""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from guided_contract.backends import BACKENDS
from guided_contract.config import GuidedDecodingConfig
from guided_contract.heartbeat import Beat, Heartbeats, core_slot
from guided_contract.status import Failure, GrammarStatus
from guided_contract.wire import Hello, Patch
from guided_sidecar.grammar.pool.workers import WorkersState
from guided_sidecar.health import engine_state
from guided_sidecar.health.engine_state import EngineState
from guided_sidecar.health.probe import ProbeStatus
from guided_sidecar.health.readiness import Reading, Verdict, judge
from guided_sidecar.health.status_page import page
from guided_sidecar.socket.snapshot import ServiceSnapshot
from support.engine import pod_config

BOOT = "boot-1"
S = 1_000_000_000
LAUNCHER = Hello(role="launcher", pid=1, boot=BOOT, versions={"vllm": "0.32.0"})
UNSUPPORTED = Hello(role="launcher", pid=1, boot=BOOT, unsupported="vLLM 1.0 is not supported")
API = Hello(role="api", pid=2, boot=BOOT, patches=[Patch(name="errors", state="Applied")])
CORE = Hello(role="core", pid=3, boot=BOOT, patches=[Patch(name="detach", state="Applied")])
RANKS = tuple(Hello(role="rank", pid=4 + rank, boot=BOOT, rank=rank, samples=True) for rank in range(2))
ALL = (LAUNCHER, API, CORE, *RANKS)
FAILED = Patch(name="detach", state="Failed", reason="no such function")
UNPATCHED = Hello(role="rank", pid=9, boot=BOOT, patches=[FAILED])
IDLE_RANK = Hello(role="rank", pid=5, boot=BOOT, rank=1, samples=False)  # of an earlier pipeline stage
OTHER_RANK = msgspec.structs.replace(RANKS[0], tokenizer={"guidance": "9 b"})
NAMED = GrammarStatus(name="card", state="Pending", reason="no text")
OTHER_WORKERS = WorkersState(idle=1, tokenizer={"xgrammar": "8 a", "guidance": "8 b"})
READY = Reading(
    config=pod_config(Path("/run"), tensor_parallel=2),
    snapshot=ServiceSnapshot(hellos=ALL, expected_ranks=range(2), workers=WorkersState(idle=1, forks=1)),
    engine=EngineState(running=True),
    probe=ProbeStatus(state="Passed"),
)


def reading(placement: Any = "Rank", **changes: Any) -> Reading:
    """Return a reading of a pod that is ready but for changes, in the snapshot but for those of a reading."""
    guided = GuidedDecodingConfig(placement=placement)
    config = msgspec.structs.replace(READY.config, guided_decoding=guided)
    own = {name: changes.pop(name) for name in ("engine", "probe", "draining") if name in changes}
    return replace(READY, config=config, snapshot=replace(READY.snapshot, **changes), **own)


def test_a_pod_with_everything_is_ready() -> None:
    assert judge(READY) == Verdict(True)


@pytest.mark.parametrize(
    ("changes", "reason", "message"),
    [
        ({"draining": True}, "Draining", "is stopping"),
        ({"hellos": ()}, "PluginInactive", "launcher is not connected"),
        ({"hellos": (UNSUPPORTED,)}, "PluginInactive", "vLLM 1.0 is not supported"),
        ({"hellos": (LAUNCHER,)}, "PluginInactive", "from the API server and the engine core"),
        ({"hellos": (LAUNCHER, API, *RANKS)}, "PluginInactive", "from the engine core"),
        ({"hellos": (*ALL, UNPATCHED)}, "PluginInactive", "detach in the rank process (no such function)"),
        # Processes of an earlier engine start do not count.
        ({"hellos": (*ALL, Hello(role="launcher", pid=20, boot="boot-2"))}, "PluginInactive", ""),
        ({"hellos": ALL[:4]}, "RanksMissing", "1 of 2 ranks are not connected: 1"),
        ({"hellos": (*ALL[:4], IDLE_RANK)}, "RanksMissing", "1 of 2"),
        ({"engine": EngineState(running=False)}, "EngineStalled", "write heartbeats yet"),
        (
            {"engine": EngineState(running=True, stall="rank 1 is silent")},
            "EngineStalled",
            "rank 1 is silent",
        ),
        (
            {"hellos": (LAUNCHER, API, CORE, OTHER_RANK), "workers": OTHER_WORKERS},
            "TokenizersDiffer",
            "a different tokenizer than the sidecar on rank 0: 9 b there, 8 b here",
        ),
        ({"workers": WorkersState()}, "GrammarsPending", "are starting"),
        ({"workers": WorkersState(), "exhausted": True}, "GrammarsPending", "crashed too often"),
        (
            {"grammars": (NAMED,), "awaited_grammars": frozenset({"card"})},
            "GrammarsPending",
            "1 of 1 named grammars are not loaded yet: card (no text)",
        ),
        ({"grammars": (NAMED,)}, "", ""),  # of a change to one that is in service
        ({"probe": ProbeStatus(state="Pending")}, "ProbePending", "the guided probe has not passed yet"),
        ({"probe": ProbeStatus(state="Busy", message="busy")}, "ProbePending", "busy"),
        ({"probe": ProbeStatus(state="Failed", message="HTTP 500")}, "ProbeFailed", "HTTP 500"),
        # With vLLM's own path only its engine and the probe count.
        ({"placement": "Scheduler", "draining": True}, "Draining", ""),
        ({"placement": "Scheduler", "hellos": (LAUNCHER,)}, "", ""),
        ({"placement": "Scheduler", "hellos": (UNSUPPORTED,)}, "", ""),
        ({"placement": "Scheduler", "workers": WorkersState()}, "", ""),
        ({"placement": "Scheduler", "exhausted": True}, "", ""),
        ({"placement": "Scheduler", "engine": EngineState(running=False)}, "", ""),
        ({"placement": "Scheduler", "hellos": ()}, "PluginInactive", ""),
        ({"placement": "Scheduler", "probe": ProbeStatus(state="Pending")}, "ProbePending", ""),
        ({"placement": "Scheduler", "probe": ProbeStatus(state="Failed", message="x")}, "ProbeFailed", "x"),
        ({"placement": "Scheduler", "engine": EngineState(running=True, stall="x")}, "EngineStalled", "x"),
    ],
)
def test_a_problem_has_its_reason_and_says_what_is_wrong(
    changes: dict[str, Any], reason: str, message: str
) -> None:
    verdict = judge(reading(**changes))
    assert (verdict.ready, verdict.reason) == (not reason, reason)
    assert message in verdict.message


def test_a_spent_restart_budget_leaves_the_pod_ready_and_is_told() -> None:
    """Unguided requests, and grammars that it has, need no worker."""
    found = reading(exhausted=True, workers=WorkersState(forks=3))
    verdict = judge(found)
    assert verdict.ready
    assert "crashed too often" in page(found, verdict).exhausted
    assert not page(READY, judge(READY)).exhausted


RANK = Beat(2, 99 * S, 0, 99 * S, 0)
STUCK = "3 unfinished requests and has completed no step for 21 s"


@pytest.mark.parametrize(
    ("core", "rank", "stall"),
    [
        (Beat(1, 100 * S, 5, 100 * S, 0), Beat(2, 100 * S, 5, 100 * S, 0), ""),
        (Beat(1, 99 * S, 5, 81 * S, 3), RANK, ""),  # one long step
        (Beat(1, 99 * S, 5, 79 * S, 3), RANK, STUCK),
        (Beat(1, 99 * S, 5, 79 * S, 0), RANK, ""),  # idle
        (Beat(1, 70 * S, 5, 70 * S, 0), RANK, "engine core has not responded for 30 s"),
        (Beat(1, 99 * S, 5, 99 * S, 1), Beat(2, 60 * S, 0, 60 * S, 0), "rank 0 has not responded"),
        (Beat(1, 99 * S, 5, 99 * S, 1), Beat(0, 0, 0, 0, 0), ""),  # a rank that is starting
    ],
)
def test_heartbeats_tell_what_stands_still(core: Beat, rank: Beat, stall: str) -> None:
    state = engine_state.judge(core, [rank], 100 * S)
    assert state.running
    assert (stall in state.stall) if stall else state.stall == ""


def test_heartbeats_are_read_anew_from_a_replaced_file(tmp_path: Path) -> None:
    path = tmp_path / "heartbeats"

    def read() -> EngineState:
        return engine_state.read(path, workers=1, engines=1, now_ns=S)

    assert read() == EngineState(running=False)
    path.write_bytes(b"short")
    assert read() == EngineState(running=False)
    for steps in (7, 8):
        beats = Heartbeats.create(path)
        assert not read().running
        beats.write(0, Beat(1, S, steps, S, 0))
        assert read() == EngineState(running=True, steps=steps, drafts=(0, 0))
        beats.close()


def test_each_engine_core_of_a_pod_has_its_own_slots(tmp_path: Path) -> None:
    path = tmp_path / "heartbeats"

    def read() -> EngineState:
        return engine_state.read(path, workers=2, engines=2, now_ns=100 * S)

    beats = Heartbeats.create(path)
    beats.write(0, Beat(1, 99 * S, 5, 99 * S, 1, drafts=3))
    assert not read().running
    beats.write(core_slot(1, 2), Beat(2, 99 * S, 0, 99 * S, 1))
    assert read() == EngineState(running=True, steps=5, drafts=(3, 3)), "without a step it asks for nothing"
    beats.write(core_slot(1, 2), Beat(2, 99 * S, 7, 99 * S, 1, drafts=1))
    assert read() == EngineState(running=True, steps=12, drafts=(1, 3))
    beats.write(core_slot(1, 2) + 2, Beat(3, 70 * S, 7, 70 * S, 0))
    assert "rank 1 has not responded" in read().stall
    beats.close()


def test_the_page_shows_each_rank_and_the_worst_state_of_a_patch() -> None:
    rank = msgspec.structs.replace(RANKS[1], versions={"modelRunner": "V2"}, patches=[FAILED])
    versions = {one.distribution: one.measured[-1] for one in BACKENDS.values()} | {"llguidance": "1.7.99"}
    workers = WorkersState(busy=1, restarts=Counter(crashed=3), versions=versions)
    now = reading(hellos=(LAUNCHER, CORE, rank, API), workers=workers)
    status = page(now, judge(now))
    assert (status.ready, status.reason) == (False, "PluginInactive")
    assert status.versions == {"modelRunner": "V2", "vllm": "0.32.0"}
    assert [(rank.rank, rank.state) for rank in status.ranks] == [(0, "Missing"), (1, "Connected")]
    patches = [(patch.name, patch.state) for patch in status.patches]
    assert patches == [("detach", "Failed"), ("errors", "Applied")]
    assert (status.grammar_workers.ready, status.grammar_workers.restarts) == (1, 3)
    assert [(one.name, one.version) for one in status.unmeasured] == [("llguidance", "1.7.99")]


@pytest.mark.parametrize(
    ("worker", "probe", "last"), [(None, None, None), (1, None, 1), (None, 2, 2), (1, 2, 2), (3, 2, 3)]
)
def test_the_page_shows_the_later_failure(worker: int | None, probe: int | None, last: int | None) -> None:
    def failure(year: int | None) -> Failure | None:
        return Failure(code="c", message="m", time=f"202{year}-01-01T00:00:00Z") if year else None

    now = replace(reading(workers=WorkersState(last_failure=failure(worker))), probe_failure=failure(probe))
    assert page(now, judge(now)).last_failure == failure(last)
