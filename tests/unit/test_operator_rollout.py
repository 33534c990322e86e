"""How a change reaches the pods: what is a new revision, and how many pods may be away meanwhile."""

from typing import Any

import pytest

from guided_operator.api.rollout import Rollout, surge, unavailable
from guided_operator.builders.revision_key import pod_key
from guided_operator.builders.workload import workload
from support.manifests import guided_model

GRAMMAR = {"name": "a", "kind": "Regex", "configMapKeyRef": {"name": "texts", "key": "a"}}

# As release 0.1.0 made them. A release that makes others restarts every pod of whoever upgrades to it.
KEYS: dict[str, dict[str, Any]] = {
    "f790f7982b": {},
    "e1a4011117": {"guidedDecoding": {"backend": "Guidance"}},
    "27c86f72f1": {"telemetry": {}},
    "e564ec9995": {
        "engine__args": ["--seed", "7"],
        "resources": {"limits": {"cpu": "0.5"}},
        "speculative": {"method": "NGram", "numTokens": 3},
        "telemetry": {"endpoint": "http://c:4318"},
        "replicas": 7,
    },
    "d93dac9879": {
        "logitsProcessors": [
            {"name": "p", "factory": "a.b:C", "params": {"x": [1]}},
            {"name": "q", "factory": "a.b:D", "enforced": True},
        ]
    },
}


def strategy(**fields: Any) -> dict[str, Any]:
    found: dict[str, Any] = workload(guided_model(**fields), {"metadata": {"labels": {}}}, 1)["spec"]
    return found


@pytest.mark.parametrize(("key", "fields"), KEYS.items())
def test_key_is_that_of_earlier_releases(key: str, fields: dict[str, Any]) -> None:
    assert pod_key(guided_model(**fields)) == key


@pytest.mark.parametrize(
    "fields",
    [
        {"replicas": 4},
        {"engine__version": "0.32.0"},
        {"guidedDecoding": {"grammars": [GRAMMAR]}},
        {"guidedDecoding": {"placement": "Rank"}},
        {"rollout": {"maxSurge": "25%", "maxUnavailable": 2, "paused": True}},
        {"rollout": {"progressDeadline": "3h", "rollbackTo": "0123456789"}},
    ],
    ids=str,
)
def test_field_that_no_pod_is_made_from_is_no_revision(fields: dict[str, Any]) -> None:
    assert pod_key(guided_model(**fields)) == pod_key(guided_model())


def test_one_pod_at_a_time_goes_before_its_successor_comes_by_default() -> None:
    assert strategy()["strategy"] == {
        "type": "RollingUpdate",
        "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1},
    }
    asked = strategy(rollout={"maxSurge": "50%", "maxUnavailable": 0})["strategy"]["rollingUpdate"]
    assert asked == {"maxSurge": "50%", "maxUnavailable": 0}
    assert "paused" not in strategy()
    assert strategy(rollout={"paused": True})["paused"] is True


def test_progress_deadline_is_the_startup_timeout_and_a_margin() -> None:
    assert strategy()["progressDeadlineSeconds"] == 30 * 60 + 20 * 60
    assert strategy(probes={"startupTimeout": "1h"})["progressDeadlineSeconds"] == 60 * 60 + 20 * 60
    assert strategy(rollout={"progressDeadline": "31m"})["progressDeadlineSeconds"] == 31 * 60


@pytest.mark.parametrize(
    ("rollout", "replicas", "beyond", "away"),
    [
        ({}, 1, 0, 1),
        ({"max_surge": 1, "max_unavailable": 0}, 5, 1, 0),
        ({"max_surge": "25%", "max_unavailable": "25%"}, 5, 2, 1),
        ({"max_surge": 0, "max_unavailable": "25%"}, 3, 0, 1),  # rounded down it would be none, and no way on
        ({"max_surge": "10%", "max_unavailable": "100%"}, 0, 0, 1),
    ],
)
def test_pods_beyond_and_away_are_counted_as_the_deployment_does(
    rollout: dict[str, Any], replicas: int, beyond: int, away: int
) -> None:
    asked = Rollout(**rollout)
    assert (surge(asked, replicas), unavailable(asked, replicas)) == (beyond, away)
