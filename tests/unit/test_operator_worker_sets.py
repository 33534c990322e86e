"""LeaderWorkerSets by the rules of LeaderWorkerSet's own webhook and controller."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from guided_contract import names
from guided_operator.api import ManifestError, parse
from guided_operator.builders.pod_paths import Site
from support.manifests import changed, children_of, minimal
from support.worker_set_rules import AFTER_START, is_recreated, refusals

Object = dict[str, Any]
SITE = Site("guidedmodel:1")
KUEUE = "kueue.x-k8s.io/queue-name"
PERCENT = st.sampled_from(["0%", "1%", "20%", "25%", "33%", "50%", "99%", "100%"])
ROLLOUTS = st.fixed_dictionaries(
    {},
    optional={
        "maxSurge": st.integers(0, 6) | PERCENT,
        "maxUnavailable": st.integers(0, 6) | PERCENT,
        "paused": st.booleans(),
    },
)


def workload(nodes: int = 2, **fields: Any) -> Object:
    manifest = changed(minimal(), parallelism__tensor=8, parallelism__nodes=nodes, **fields)
    kinds = ("LeaderWorkerSet", "Deployment")
    [found] = [each for each in children_of(parse(manifest), SITE) if each["kind"] in kinds]
    return found


@settings(max_examples=150)
@given(ROLLOUTS, st.integers(0, 5), st.sampled_from([2, 4, 8]))
def test_the_webhook_takes_whatever_the_api_takes(rollout: Object, replicas: int, nodes: int) -> None:
    fields = {"rollout": rollout, "replicas": replicas}
    try:
        parse(changed(minimal(), **fields))
    except ManifestError:  # both are 0
        return
    made = workload(nodes, **fields)
    assert refusals(made) == []
    for scaled in range(6):  # by an autoscaler, which writes replicas alone
        assert refusals({**made, "spec": {**made["spec"], "replicas": scaled}}) == []


@pytest.mark.parametrize(
    ("rollout", "replicas", "counts"),
    [
        ({"maxUnavailable": "25%"}, 2, (0, 1)),
        ({"maxUnavailable": "25%"}, 8, (0, 2)),
        ({"maxSurge": "25%", "maxUnavailable": 0}, 2, (1, 0)),
        ({"maxSurge": "25%", "maxUnavailable": "25%"}, 0, (0, 1)),
        ({"maxSurge": 1, "maxUnavailable": "10%"}, 5, (1, 0)),
    ],
)
def test_percentages_become_counts_as_for_a_deployment(
    rollout: Object, replicas: int, counts: tuple[int, int]
) -> None:
    spec = workload(replicas=replicas, rollout=rollout)["spec"]
    bounds = spec["rolloutStrategy"]["rollingUpdateConfiguration"]
    assert (bounds["maxSurge"], bounds["maxUnavailable"]) == counts


def test_a_pause_changes_no_group_and_makes_none_beside_them() -> None:
    spec = workload(replicas=3, rollout={"paused": True, "maxSurge": 2, "maxUnavailable": 0})["spec"]
    bounds = spec["rolloutStrategy"]["rollingUpdateConfiguration"]
    assert bounds == {"maxSurge": 0, "maxUnavailable": 1, "partition": 3}


@pytest.mark.parametrize("nodes", [1, 2])
def test_a_workload_has_the_labels_of_its_pods(nodes: int) -> None:
    made = workload(nodes, pod={"labels": {KUEUE: "gpus", "team": "a"}})
    spec = made["spec"]
    template = spec["template"] if nodes == 1 else spec["leaderWorkerTemplate"]["workerTemplate"]
    assert made["metadata"]["labels"] == template["metadata"]["labels"]
    assert made["metadata"]["labels"][KUEUE] == "gpus"
    assert made["metadata"]["labels"][names.LABEL_NAME] == "tiny"


def pod(phase: str, restarts: int = 0) -> Object:
    return {"status": {"phase": phase, "containerStatuses": [{"restartCount": restarts}]}}


def test_a_group_whose_image_is_still_pulled_is_left_alone_and_begins_again_afterwards() -> None:
    made = workload()
    assert not is_recreated(made, [pod("Running", 1), pod("Pending")])
    assert not is_recreated(made, [pod("Running", 1)]), "the other is not there yet"
    assert is_recreated(made, [pod("Running", 1), pod("Running")])
    assert not is_recreated(made, [pod("Running"), pod("Running")])
    del made["metadata"]["annotations"][AFTER_START]
    assert is_recreated(made, [pod("Running", 1), pod("Pending")])
