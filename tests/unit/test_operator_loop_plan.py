"""What there should be: pure, so told by values alone."""

import dataclasses
from typing import Any

from guided_contract import names
from guided_operator import kinds, revision
from guided_operator.builders import cluster_site
from guided_operator.plan import plan
from support.observed import UID, applied, model, planned, pod, revision_of, seen

Object = dict[str, Any]


def child(children: tuple[Object, ...], kind: str) -> Object:
    """Return the child of a kind; of two ConfigMaps, the configuration."""
    found, *_ = [each for each in children if each["kind"] == kind]
    return found


def changed(number: int) -> Object:
    raw = model()
    raw["spec"]["engine"]["env"] = [{"name": "NUMBER", "value": str(number)}]
    return raw


def test_revision_is_written_before_what_is_made_from_it() -> None:
    order = [each["kind"] for each in planned(seen()).children]
    assert order == [
        *("ControllerRevision", "ServiceAccount", "ConfigMap", "ConfigMap", "Service", "Deployment")
    ]


def test_every_child_is_owned_and_labelled() -> None:
    for each in planned(seen()).children:
        assert kinds.is_owned(each, UID), each["kind"]
        assert each["metadata"]["labels"][names.LABEL_NAME] == "m"
        assert each["metadata"]["namespace"] == "ns"


def test_invalid_spec_plans_nothing_and_prunes_nothing() -> None:
    raw = model()
    raw["spec"]["engine"]["image"] = "vllm/vllm-openai:v0.1.0"
    wanted = planned(applied(seen()))
    refused = planned(dataclasses.replace(applied(seen()), model=raw))
    assert wanted.children
    assert refused.problems
    assert (refused.children, refused.surplus) == ((), ())


def test_unknown_field_is_a_problem_and_no_crash() -> None:
    [problem] = planned(seen(model(replicasss=2))).problems
    assert "replicasss" in problem.field


def test_new_release_applies_the_stored_template() -> None:
    observed = applied(seen())
    newer = plan(observed, cluster_site("registry.test/guidedmodel:2"))
    assert child(newer.children, "Deployment") == child(planned(observed).children, "Deployment")
    assert child(newer.children, "ConfigMap") == child(planned(observed).children, "ConfigMap")
    assert newer.revision == planned(observed).revision


def test_replicas_are_no_revision_but_another_field_is() -> None:
    assert revision_of(model(replicas=5)) == revision_of()
    assert revision_of(changed(1)) != revision_of()
    assert planned(seen(model(replicas=5))).desired == 5


def test_step_back_gets_the_highest_number_and_the_old_content() -> None:
    observed = applied(seen())
    observed = applied(dataclasses.replace(observed, model=changed(1)))
    back = planned(dataclasses.replace(observed, model=model()))
    stored = child(back.children, "ControllerRevision")
    assert stored["revision"] == 3
    assert stored["data"]["template"] == child(back.children, "Deployment")["spec"]["template"]


def test_history_is_limited_but_keeps_revisions_with_pods() -> None:
    observed = applied(seen(changed(0)))
    for number in range(1, revision.HISTORY_LIMIT + 4):
        observed = applied(dataclasses.replace(observed, model=changed(number)))
    oldest, second = revision_of(changed(0)), revision_of(changed(1))
    everything = {name for _, name in planned(observed).surplus}
    assert {f"m-{oldest}", f"m-{second}"} <= everything
    assert f"m-{planned(observed).revision}" not in everything
    assert len(planned(observed).surplus) == 2 * 3, "revision and configuration of each that goes"
    with_pod = dataclasses.replace(observed, pods=(pod("p", oldest),))
    assert f"m-{oldest}" not in {name for _, name in planned(with_pod).surplus}


def test_foreign_revision_is_not_believed() -> None:
    observed = applied(seen())
    [(name, stored)] = observed.children["ControllerRevision"].items()
    stored["data"]["template"]["spec"]["containers"][0]["image"] = "evil"
    stored["metadata"]["ownerReferences"][0]["uid"] = "another"
    assert name == f"m-{planned(observed).revision}"
    template = child(planned(observed).children, "Deployment")["spec"]["template"]
    assert "evil" not in str(template)


def test_plan_is_a_function_of_its_input() -> None:
    assert planned(applied(seen())) == planned(applied(seen()))
