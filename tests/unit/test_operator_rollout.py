"""How a change reaches the pods, and `rollout.rollbackTo`: what runs is what was checked."""

import dataclasses
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from guided_operator.api import GuidedModel, parse
from guided_operator.api.rollout import Rollout, surge, unavailable
from guided_operator.builders.configuration import config_file
from guided_operator.builders.pod import pod_template
from guided_operator.builders.revision_key import kept_spec, pod_key, with_kept_spec
from guided_operator.builders.workload import workload
from guided_operator.policy.installation_limits import Limits
from guided_operator.reconcile.observe import Observed
from guided_operator.reconcile.plan import Plan, plan
from support.drawn import FIELDS, MODELS
from support.manifests import changed, children_of, guided_model, minimal
from support.observed import SITE, applied, model, pod, revision_of, seen

Object = dict[str, Any]

FOREIGN = "registry.evil/vllm:v0.32.0"


def with_image(image: str, **spec: Any) -> Object:
    raw = model(**spec)
    raw["spec"]["engine"]["image"] = image
    return raw


def evil() -> Object:
    processors = [{"name": "a", "factory": "evil:Code"}]
    hub = {"uri": "hf://evil/repo", "trustRemoteCode": True}
    return with_image(FOREIGN, model=hub, logitsProcessors=processors)


def edited(old: Object, new: Object) -> Observed:
    """Return what is observed after one spec was applied, and then the other."""
    return applied(dataclasses.replace(applied(seen(old)), model=new))


def rolled_back(observed: Observed, to: Object, limits: Limits = Limits()) -> Plan:  # noqa: B008 - frozen
    raw = observed.model
    rollout = {**raw["spec"].get("rollout", {}), "rollbackTo": revision_of(to)}
    raw = {**raw, "spec": {**raw["spec"], "rollout": rollout}}
    return plan(dataclasses.replace(observed, model=raw), SITE, limits)


@pytest.mark.parametrize(
    ("limits", "field"),
    [
        (Limits(images=("docker.io",)), "spec.engine.image"),
        (Limits(processor_factories=("guided_engine.*",)), "spec.logitsProcessors[0].factory"),
    ],
)
def test_limits_hold_for_what_is_rolled_back_to(limits: Limits, field: str) -> None:
    observed = edited(evil(), model())
    assert not plan(observed, SITE, limits).problems
    refused = rolled_back(observed, evil(), limits)
    [problem] = refused.problems
    assert problem.field == "spec.rollout.rollbackTo"
    assert revision_of(evil()) in problem.message
    assert field in problem.message
    assert (refused.children, refused.surplus) == ((), ())


def test_what_is_stored_under_the_key_of_another_spec_is_checked_as_well() -> None:
    """Keys have 40 bits: two specs of one key, the harmless one after the other, are found in seconds."""
    observed = applied(seen())
    [item] = observed.children["ControllerRevision"].values()
    item["data"]["spec"] = kept_spec(parse(evil()))
    [problem] = plan(observed, SITE, Limits(images=("docker.io",))).problems
    assert "spec.engine.image" in problem.message
    assert not plan(observed, SITE).problems


def test_a_revision_that_cannot_be_checked_does_not_run_where_there_are_limits() -> None:
    """Earlier releases kept no spec."""
    observed = edited(model(replicas=2, rollout={"restartToken": "1"}), model())
    for item in observed.children["ControllerRevision"].values():
        del item["data"]["spec"]
    old, limits = model(rollout={"restartToken": "1"}), Limits(images=("docker.io",))
    [problem] = rolled_back(observed, old, limits).problems
    assert problem.field == "spec.rollout.rollbackTo"
    assert revision_of(old) in problem.message
    around = Limits(processor_factories=("*",))
    assert rolled_back(observed, old, around).revision == revision_of(old)
    assert not plan(observed, SITE, limits).problems, "its own revision is made from the spec"


def test_a_spec_that_cannot_run_does_not_keep_from_rolling_back() -> None:
    observed = applied(seen())
    refused = with_image("vllm/vllm-openai:v0.1.0", replicas=3, model={"uri": "hf://other/model"})
    observed = dataclasses.replace(observed, model=refused, pods=(pod("a", revision_of()),))
    assert plan(observed, SITE).problems
    made = rolled_back(observed, model())
    assert made.problems == ()
    assert (made.revision, made.asked, made.replicas) == (revision_of(), pod_key(parse(refused)), 3)


@settings(max_examples=30)
@given(MODELS, MODELS)
def test_what_is_checked_is_what_pods_are_made_from_and_what_stands_around_them(
    old: GuidedModel, now: GuidedModel
) -> None:
    both = parse(with_kept_spec(now, json.loads(json.dumps(kept_spec(old)))))
    nothing = {"telemetry": {}}  # the same as none, but for the key
    assert nothing | kept_spec(both) == nothing | kept_spec(old)
    around = ("replicas", "network_policy", "rollout")
    assert [getattr(both.spec, name) for name in around] == [getattr(now.spec, name) for name in around]
    assert both.spec.guided_decoding.grammars == now.spec.guided_decoding.grammars
    assert both.metadata == now.metadata
    assert Limits(images=("docker.io",)).check(both) == Limits(images=("docker.io",)).check(old)


# --- what is a new revision, and how many pods may be away meanwhile ---

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


@given(FIELDS, st.integers(0, 100))
def test_what_stays_the_same_restarts_no_pod(fields: dict[str, Any], replicas: int) -> None:
    """The same input, defaults that the API server writes out, another number of replicas."""
    first, gm = (parse(changed(minimal(), **fields)) for _ in range(2))
    assert json.dumps(children_of(first, SITE)) == json.dumps(children_of(gm, SITE))

    # As the API server stores it: every default written out.
    served = gm.model_dump(by_alias=True, exclude_none=True, exclude={"status"})
    stored = parse(json.loads(json.dumps(served)))
    assert children_of(stored, SITE) == children_of(gm, SITE)
    assert pod_key(stored) == pod_key(gm)

    scaled = parse(changed(served, replicas=replicas))
    assert pod_key(scaled) == pod_key(gm)
    assert pod_template(scaled, SITE) == pod_template(gm, SITE)


@given(MODELS, MODELS)
def test_pods_that_differ_have_different_keys(one: GuidedModel, other: GuidedModel) -> None:
    templates = [pod_template(gm, SITE)["spec"] for gm in (one, other)]
    configurations = [config_file(gm, SITE) for gm in (one, other)]
    if templates[0] != templates[1] or configurations[0] != configurations[1]:
        assert pod_key(one) != pod_key(other)


@given(MODELS)
def test_no_pod_has_a_token_a_writable_root_or_a_variable_twice(gm: GuidedModel) -> None:
    """Volumes, quantities and the restricted standard are judged by tests/cluster/test_drawn.py."""
    spec = pod_template(gm, SITE)["spec"]
    assert spec["automountServiceAccountToken"] is False
    assert spec["enableServiceLinks"] is False, "Services of a namespace set no variables"
    for container in (*spec["initContainers"], *spec["containers"]):
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        names = [variable["name"] for variable in container.get("env", [])]
        assert len(names) == len(set(names))
