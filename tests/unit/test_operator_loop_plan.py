"""What there should be: pure, so told by values alone."""

import dataclasses
from typing import Any

from guided_operator.builders.pod_paths import Site
from guided_operator.kube import kinds
from guided_operator.policy.installation_limits import Limits
from guided_operator.reconcile.plan import plan
from guided_operator.reconcile.rollout import revision
from support.observed import SITE, applied, model, planned, pod, revision_of, seen

Object = dict[str, Any]


def child(children: tuple[Object, ...], kind: str) -> Object:
    """Return the child of a kind; of two ConfigMaps, the configuration."""
    found, *_ = [each for each in children if each["kind"] == kind]
    return found


def changed(number: int) -> Object:
    raw = model()
    raw["spec"]["engine"]["env"] = [{"name": "APP_NUMBER", "value": str(number)}]
    return raw


def test_invalid_spec_or_one_beyond_limits_plans_nothing_and_prunes_nothing() -> None:
    raw = model()
    raw["spec"]["engine"]["image"] = "vllm/vllm-openai:v0.1.0"
    observed = applied(seen())
    assert planned(observed).children
    limits = Limits(images=("registry.example",))
    for refused in (planned(dataclasses.replace(observed, model=raw)), plan(observed, SITE, limits)):
        assert [problem.field for problem in refused.problems] == ["spec.engine.image"]
        assert (refused.children, refused.surplus) == ((), ())


def test_value_of_a_later_release_is_a_problem_and_no_crash() -> None:
    [problem] = planned(seen(model(replicas="many"))).problems
    assert problem.field == "spec.replicas"


def test_a_new_release_applies_the_stored_template_until_a_restart_is_asked_for() -> None:
    observed = applied(seen())
    newer = plan(observed, Site("registry.test/guidedmodel:2"))
    assert child(newer.children, "Deployment") == child(planned(observed).children, "Deployment")
    assert child(newer.children, "ConfigMap") == child(planned(observed).children, "ConfigMap")
    assert newer.revision == planned(observed).revision
    restarted = plan(
        dataclasses.replace(observed, model=model(rollout={"restartToken": "1"})),
        Site("registry.test/guidedmodel:2"),
    )
    assert ":2" in str(child(restarted.children, "Deployment")["spec"]["template"])


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
    gone = [name for kind, name in planned(observed).surplus if kind is not kinds.POD_MONITOR]
    assert len(gone) == 2 * 3, "revision and configuration of each that goes"
    with_pod = dataclasses.replace(observed, pods=(pod("p", oldest),))
    assert f"m-{oldest}" not in {name for _, name in planned(with_pod).surplus}


def test_configuration_of_an_older_revision_is_repaired_while_it_has_pods() -> None:
    observed = applied(seen())
    observed = applied(dataclasses.replace(observed, model=changed(1)))
    old, name = child(planned(seen()).children, "ConfigMap"), f"m-{revision_of()}"
    del observed.children["ConfigMap"][name]  # type: ignore[attr-defined]
    assert old not in planned(observed).children
    assert old in planned(dataclasses.replace(observed, pods=(pod("p", revision_of()),))).children


def rolled_back(raw: Object, key: str) -> Object:
    return {**raw, "spec": {**raw["spec"], "rollout": {"rollbackTo": key}}}


def test_rollback_runs_the_stored_revision_whatever_else_the_spec_says() -> None:
    observed = applied(seen())
    first = planned(observed)
    observed = applied(dataclasses.replace(observed, model=changed(1)))
    for raw in (changed(1), changed(2)):
        back = planned(dataclasses.replace(observed, model=rolled_back(raw, first.revision)))
        assert (back.revision, back.asked) == (first.revision, revision_of(raw))
        template = child(back.children, "Deployment")["spec"]["template"]
        assert template == child(first.children, "Deployment")["spec"]["template"]
        assert child(back.children, "ConfigMap")["metadata"]["name"] == f"m-{first.revision}"
        assert child(back.children, "ControllerRevision")["revision"] == 3
    onward = planned(applied(dataclasses.replace(observed, model=changed(2))))
    assert onward.revision == onward.asked == revision_of(changed(2))


def test_rollback_to_what_is_not_stored_changes_nothing_and_names_what_is() -> None:
    observed = applied(seen())
    raw = rolled_back(model(), "0123456789")
    refused = planned(dataclasses.replace(observed, model=raw))
    [problem] = refused.problems
    assert problem.field == "spec.rollout.rollbackTo"
    assert revision_of() in problem.message
    assert (refused.children, refused.surplus) == ((), ())


def test_rollback_keeps_the_revision_that_the_spec_asks_for() -> None:
    observed = applied(seen(changed(0)))
    for number in range(1, revision.HISTORY_LIMIT + 1):
        observed = applied(dataclasses.replace(observed, model=changed(number)))
    asked = changed(0)  # the oldest, and so the first that history would have no room for
    raw = rolled_back(asked, revision_of(changed(1)))
    observed = applied(dataclasses.replace(observed, model=changed(9)))
    gone = {name for _, name in planned(dataclasses.replace(observed, model=raw)).surplus}
    assert f"m-{revision_of(asked)}" not in gone


def test_foreign_revision_is_not_believed() -> None:
    observed = applied(seen())
    [(name, stored)] = observed.children["ControllerRevision"].items()
    stored["data"]["template"]["spec"]["containers"][0]["image"] = "evil"
    stored["metadata"]["ownerReferences"][0]["uid"] = "another"
    assert name == f"m-{planned(observed).revision}"
    template = child(planned(observed).children, "Deployment")["spec"]["template"]
    assert "evil" not in str(template)
