"""Each alert fires in its outage, and none in a healthy course: played time, by Prometheus' own engine.

Pages are rendered by sidecar and operator, scraped as our PodMonitors say, and judged by the rules' files.
"""

import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from devtools import advice_tables, golang

from guided_contract.records import MatchersRestart
from guided_sidecar.grammar.pool.workers import WorkersState
from guided_sidecar.ranks.agreement import AgreementState
from support.cluster import unavailable
from support.monitored import (
    CRASHED,
    PULLING,
    READY_POD,
    SERVED,
    STARTING_POD,
    Pod,
    World,
    decode,
    groups,
    hellos,
    request,
)

RUNBOOK = Path(__file__).parents[2] / "docs/runbook.md"
RULES: dict[str, dict[str, Any]] = {rule["alert"]: rule for group in groups() for rule in group["rules"]}
ANOTHER_REVISION = [{"name": "APP_NUMBER", "value": "2"}]


@pytest.fixture(scope="module", autouse=True)
def _promql() -> None:
    try:
        golang.promql()
    except golang.MissingToolError as error:
        unavailable(error)


# --- outages: a model of two pods that is well, and what happens then ---


def _pods(*numbers: int, **state: Any) -> Callable[[World], None]:
    def happens(world: World) -> None:
        for number in numbers:
            world.pods[f"m-{number}"].become(**state)

    return happens


def _no_pods(world: World) -> None:
    world.pods.clear()


def _operator(**state: Any) -> Callable[[World], None]:
    return lambda world: vars(world.operator).update(state)


DEAD = {"ready": False, "serves": False, "engine": CRASHED}
A_RANK_IS_LOST = _pods(1, hellos=hellos(1), ready=False)
UNANSWERED = [*SERVED, *[request(503, "grammar_service_exhausted")] * 3]
# What happens -> which alerts fire within 25 minutes: all of them, and no others.
OUTAGES: dict[str, tuple[Callable[[World], object], set[str]]] = {
    "no pods can be made": (_no_pods, {"GuidedModelHasNoReadyPod"}),
    "all pods crash": (_pods(0, 1, **DEAD), {"GuidedModelHasNoReadyPod"}),
    "no image": (_pods(0, 1, **DEAD | {"engine": PULLING}), {"GuidedModelHasNoReadyPod"}),
    "one of two cannot be made": (lambda world: world.pods.pop("m-1"), {"GuidedModelReplicasMissing"}),
    "a rank is lost": (A_RANK_IS_LOST, {"GuidedModelReplicasMissing", "GuidedModelRanksMissing"}),
    "the probe fails": (
        _pods(1, probe="Failed", ready=False),
        {"GuidedModelReplicasMissing", "GuidedModelProbeFailed"},
    ),
    "ranks disagree": (
        _pods(0, agreement=AgreementState(desyncs=Counter({1: 1}))),
        {"GuidedModelRanksDisagree"},
    ),
    "budget spent": (_pods(0, exhausted=True), {"GuidedModelGrammarServiceExhausted"}),
    "workers crash": (
        _pods(0, workers=WorkersState(idle=1, forks=9, restarts=Counter(crashed=9))),
        {"GuidedModelGrammarWorkersCrash"},
    ),
    "matchers crash": (
        _pods(0, records=[*SERVED, MatchersRestart(rank=1)]),
        {"GuidedModelMatchersCrash"},
    ),
    "compiles wait": (
        _pods(0, workers=WorkersState(busy=1, forks=1, queued=3)),
        {"GuidedModelGrammarQueueGrows"},
    ),
    "5xx": (_pods(0, records=UNANSWERED), {"GuidedModelRequestsUnavailable"}),
    "sequences fail": (
        _pods(0, records=[*SERVED, decode(end_reason="sequence_dead_end")]),
        {"GuidedModelSequencesFail"},
    ),
    "masks late": (
        _pods(0, records=[request(), decode(exposed_ns=2_000_000_000)]),
        {"GuidedModelMasksLate"},
    ),
    "traces lost": (_pods(0, lost=1), {"GuidedModelTelemetryLost"}),
    "no operator": (lambda world: world.operators.clear(), {"GuidedModelOperatorHasNoLeader"}),
    "passes fail": (_operator(failures={"NameConflict": 1}), {"GuidedModelOperatorPassesFail"}),
    "a bug": (_operator(failures={"Bug": 1}), {"GuidedModelOperatorHasABug"}),
    "queue": (_operator(depth=40), {"GuidedModelOperatorQueueGrows"}),
    "blind": (_operator(forbidden=1), {"GuidedModelOperatorIsBlind"}),
    "unsettled": (_operator(unsettles=1), {"GuidedModelOperatorDoesNotConverge"}),
}


@pytest.mark.parametrize("outage", OUTAGES)
def test_each_alert_fires_in_its_outage_and_no_other(outage: str) -> None:
    happens, expected = OUTAGES[outage]
    world = World(replicas=2)
    world.run(5)
    happens(world)
    world.run(25)
    assert world.fired() == expected


def test_every_alert_has_an_outage() -> None:
    assert set().union(*(fires for _, fires in OUTAGES.values())) == set(RULES)


def test_an_alert_says_whose_pods_are_missing_and_what_to_do() -> None:
    world = World(replicas=2)
    world.run(5)
    _no_pods(world)
    world.run(15)
    (told,) = world.alerts()
    assert (told.labels["namespace"], told.labels["model"]) == ("ns", "m")
    assert "kubectl describe pods -n ns -l guidedmodel.io/name=m;" in told.annotations["description"]
    assert told.at == 15 * 60


# --- starts ---


_QUEUED = WorkersState(busy=1, forks=1, queued=3)  # grammars that were asked for before there was a worker


def test_a_start_within_its_time_raises_nothing() -> None:
    """Also beside an operator that starts with it, and has all models to look at."""
    world = World()
    world.pods = {"m-0": Pod(**STARTING_POD, workers=_QUEUED)}
    world.operator.depth = 40
    world.run(4)
    world.operator.depth = 0
    world.pods["m-0"].become(workers=WorkersState(idle=2, forks=2))
    world.run(21)
    world.pods["m-0"].become(**READY_POD)
    world.run(30)
    assert world.fired() == set()


def test_a_start_that_takes_too_long_is_told() -> None:
    """Of a pod with nothing known to be wrong: progressDeadline is startupTimeout and 20 minutes."""
    world = World()
    world.pods = {"m-0": Pod(**STARTING_POD)}
    world.run(70)
    told = {one.name: one.at for one in world.alerts()}
    assert told == dict.fromkeys(("GuidedModelHasNoReadyPod", "GuidedModelRanksMissing"), 60 * 60)


def test_pods_that_are_replaced_again_and_again_do_not_begin_anew() -> None:
    """As those of a group, which has all of its pods made anew when one restarts."""
    world = World()
    world.run(5)
    for number in range(1, 8):
        world.pods = {f"m-{number}": Pod(**STARTING_POD)}
        world.run(10)
    assert "GuidedModelHasNoReadyPod" in world.fired()


# --- other healthy courses ---


@pytest.mark.parametrize("kept", [1, 0])
def test_a_rollout_raises_nothing(kept: int) -> None:
    """With the old pod there until the new one is ready, or without."""
    world = World()
    world.run(5)
    world.raw["spec"]["engine"]["env"] = ANOTHER_REVISION
    new = Pod(**STARTING_POD)
    world.pods = dict([*world.pods.items()][:kept]) | {"m-new": new}
    world.run(25)
    world.pods = {"m-new": new}
    new.become(**READY_POD)
    world.run(15)
    assert world.fired() == set()


def test_none_where_none_is_wanted() -> None:
    world = World(replicas=2)
    world.run(5)
    world.raw["spec"]["replicas"] = 0
    world.pods.clear()
    world.run(15)
    assert world.fired() == set()


def test_an_answer_that_is_cut_or_that_nobody_waits_for_is_no_failure() -> None:
    world = World()
    ends = ["completed", "completed", "completed", "length", "stopped", "aborted"]
    world.pods["m-0"].become(records=[request(), *(decode(end_reason=end) for end in ends)])
    world.run(20)
    assert world.fired() == set()


# --- what the rules say ---


def test_every_alert_leads_to_its_place_in_the_runbook_which_has_the_texts_of_advice() -> None:
    page = RUNBOOK.read_text()
    assert re.findall(r"^### (\w+)$", page, re.MULTILINE) == list(RULES)
    for alert, rule in RULES.items():
        assert rule["annotations"]["runbook_url"] == f"docs/runbook.md#{alert.lower()}"
    assert f"\n\n{advice_tables.table()}\n" in page
