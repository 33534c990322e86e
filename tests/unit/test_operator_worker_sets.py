"""LeaderWorkerSets by the rules of LeaderWorkerSet's own webhook, and as its controller is to treat them.

The rules are written after kubernetes-sigs/lws (Apache-2.0), whose webhook cannot be run here.
"""

import re
from collections.abc import Callable
from math import ceil, floor
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from guided_contract import names
from guided_operator.api import ManifestError, parse
from guided_operator.builders.pod_paths import Site
from support.manifests import changed, children_of, minimal

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


def bounds_of(made: Object) -> Object:
    found: Object = made["spec"]["rolloutStrategy"]["rollingUpdateConfiguration"]
    return found


def is_odd(bound: int | str) -> bool:
    if isinstance(bound, int):
        return bound < 0
    return not re.fullmatch(r"[0-9]+%", bound) or int(bound[:-1]) > 100


def count(bound: int | str, replicas: int, rounded: Callable[[float], int]) -> int:
    return bound if isinstance(bound, int) else rounded(int(bound[:-1]) * replicas / 100)


def is_refused(made: Object) -> bool:
    """Say whether the webhook refuses it; of names and labels it asks what every API server does."""
    replicas, bounds = made["spec"]["replicas"], bounds_of(made)
    surge, unavailable = bounds["maxSurge"], bounds["maxUnavailable"]
    if is_odd(surge) or is_odd(unavailable) or bounds.get("partition", 0) < 0:
        return True
    counts = count(surge, replicas, ceil), count(unavailable, replicas, floor)
    return counts == (0, 0) and replicas > 0


@settings(max_examples=150)
@given(ROLLOUTS, st.integers(0, 5), st.sampled_from([2, 4, 8]))
def test_the_webhook_takes_whatever_the_api_takes(rollout: Object, replicas: int, nodes: int) -> None:
    fields = {"rollout": rollout, "replicas": replicas}
    try:
        parse(changed(minimal(), **fields))
    except ManifestError:  # both are 0
        return
    made = workload(nodes, **fields)
    for scaled in (replicas, *range(6)):  # by an autoscaler, which writes replicas alone
        assert not is_refused({**made, "spec": {**made["spec"], "replicas": scaled}})


@pytest.mark.parametrize(
    ("rollout", "replicas", "bounds"),
    [
        # Percentages become counts as for a Deployment.
        ({"maxUnavailable": "25%"}, 2, {"maxSurge": 0, "maxUnavailable": 1}),
        ({"maxUnavailable": "25%"}, 8, {"maxSurge": 0, "maxUnavailable": 2}),
        ({"maxSurge": "25%", "maxUnavailable": 0}, 2, {"maxSurge": 1, "maxUnavailable": 0}),
        ({"maxSurge": 1, "maxUnavailable": "10%"}, 5, {"maxSurge": 1, "maxUnavailable": 0}),
        # A pause changes no group, and makes none beside them.
        (
            {"paused": True, "maxSurge": 2, "maxUnavailable": 0},
            3,
            {"maxSurge": 0, "maxUnavailable": 1, "partition": 3},
        ),
    ],
)
def test_groups_are_rolled_out_as_pods_of_a_deployment(
    rollout: Object, replicas: int, bounds: Object
) -> None:
    assert bounds_of(workload(replicas=replicas, rollout=rollout)) == bounds


@pytest.mark.parametrize("nodes", [1, 2])
def test_a_workload_has_the_labels_of_its_pods(nodes: int) -> None:
    made = workload(nodes, pod={"labels": {KUEUE: "gpus", "team": "a"}})
    spec = made["spec"]
    template = spec["template"] if nodes == 1 else spec["leaderWorkerTemplate"]["workerTemplate"]
    assert made["metadata"]["labels"] == template["metadata"]["labels"]
    assert made["metadata"]["labels"][KUEUE] == "gpus"
    assert made["metadata"]["labels"][names.LABEL_NAME] == "tiny"


def test_a_group_that_restarts_begins_again_together_once_all_its_images_are_pulled() -> None:
    made = workload()
    # A value of all versions; the other one, RecreateGroupAfterStart, is refused before 0.9.
    assert made["spec"]["leaderWorkerTemplate"]["restartPolicy"] == "RecreateGroupOnPodRestart"
    after_start = "leaderworkerset.sigs.k8s.io/experimental-recreate-group-after-start"
    assert after_start in made["metadata"]["annotations"]
