"""What stands beside the pods may be refused: it is told, tried again, and holds up nothing else."""

import dataclasses
import datetime as dt
from typing import Any

import pytest

from guided_operator.kube import kinds
from guided_operator.kube.api_errors import (
    AccessForbidden,
    ApiError,
    ObjectInvalid,
    ServerUnavailable,
    WriteConflict,
)
from guided_operator.kube.key import Key
from guided_operator.kube.kinds import Kind
from guided_operator.reconcile.apply import Applier, Fault, Outcome
from guided_operator.reconcile.conditions.chains import decide
from guided_operator.reconcile.loop import ChildFaultError, Loops
from guided_operator.reconcile.report import make_status, report, to_object
from guided_operator.reconcile.rollout import rollover
from guided_operator.reconcile.rollout.revision import HISTORY_LIMIT
from guided_operator.telemetry.metrics import OperatorMetrics
from support.kstatus import kstatus
from support.memory_api import MemoryApi
from support.observed import model, planned, pod, revision_of, seen, serving

Object = dict[str, Any]
NOW = dt.datetime(2026, 11, 25, 12, tzinfo=dt.UTC)
METRICS = {"metrics": {"labels": {"release": "p"}}}
AUXILIARIES = {
    kinds.DISRUPTION_BUDGET: model(),
    kinds.POD_MONITOR: model(telemetry=METRICS),
}
NEEDED = (kinds.REVISION, kinds.CONFIG_MAP, kinds.SERVICE_ACCOUNT, kinds.NETWORK_POLICY, kinds.SERVICE)
QUOTA = "exceeded quota: nothing-beside, requested: count=1, used: 0, limited: 0"


class Refusing(MemoryApi):
    """Refuses every write of these kinds."""

    def __init__(self, *refused: Kind, error: type[ApiError] = AccessForbidden, status: int = 403) -> None:
        super().__init__()
        self.refused = {kind.plural for kind in refused}
        self.error = error(QUOTA, status=status)

    def refuse(self, path: str) -> None:
        if self.refused & set(path.split("/")):
            raise self.error

    async def create(self, path: str, body: Object, **more: Any) -> Object:
        self.refuse(path)
        return await super().create(path, body, **more)

    async def patch(self, path: str, body: Any, **more: Any) -> Object:
        self.refuse(path)
        return await super().patch(path, body, **more)

    async def delete(self, path: str, **more: Any) -> None:
        self.refuse(path)
        await super().delete(path, **more)


async def settle(api: MemoryApi, raw: Object) -> Outcome:
    """Apply what is planned for a model whose children are those in `api`."""
    observed = seen(raw, children=api.children())
    return await Applier(api, lambda *_: None).apply(observed, planned(observed))


def made(api: MemoryApi) -> set[tuple[str, str]]:
    return {(each["kind"], each["metadata"]["name"]) for each in api.objects.values()}


def asked(raw: Object) -> set[tuple[str, str]]:
    return {(each["kind"], each["metadata"]["name"]) for each in planned(seen(raw)).children}


def test_what_no_pod_needs_is_what_stands_beside_them() -> None:
    assert {kind for kind in kinds.CHILDREN if kind.auxiliary} == set(AUXILIARIES)


@pytest.mark.parametrize(
    ("error", "status", "reason"),
    [
        (AccessForbidden, 403, "Forbidden"),
        (ObjectInvalid, 422, "ApplyRefused"),
        (ServerUnavailable, 500, "ApplyRefused"),  # a webhook that cannot be called
        (ServerUnavailable, 503, "ApplyRefused"),  # and one that says so
        (WriteConflict, 409, "ApplyRefused"),
    ],
)
@pytest.mark.parametrize("kind", AUXILIARIES, ids=lambda kind: kind.name)
async def test_a_refused_auxiliary_keeps_no_other_child_and_no_condition(
    kind: Kind, error: type[ApiError], status: int, reason: str
) -> None:
    raw = AUXILIARIES[kind]
    api = Refusing(kind, error=error, status=status)
    outcome = await settle(api, raw)
    assert made(api) == asked(raw) - {(kind.name, "m")}
    told = serving(pod("a", revision_of(raw)), raw=raw)
    well = decide(told)
    found = decide(dataclasses.replace(told, outcome=Outcome(outcome.faults)))
    condition = found.pop("AuxiliaryResourcesReady")
    assert (condition.status, condition.reason) == ("False", reason)
    assert condition.message == f"{kind.name} m: {QUOTA}"
    assert well.pop("AuxiliaryResourcesReady").status == "True"
    assert found == well
    assert found["Ready"].status == "True"


@pytest.mark.parametrize("kind", AUXILIARIES, ids=lambda kind: kind.name)
async def test_anothers_object_beside_the_pods_is_a_conflict_of_its_own(kind: Kind) -> None:
    raw, api = AUXILIARIES[kind], MemoryApi()
    theirs = {"kind": kind.name, "metadata": {"name": "m", "namespace": "ns", "uid": "u"}, "spec": {}}
    api.objects[kind.path("ns", "m")] = theirs
    outcome = await settle(api, raw)
    assert [(fault.reason, fault.auxiliary) for fault in outcome.faults] == [("NameConflict", True)]
    assert made(api) == asked(raw)
    assert api.objects[kind.path("ns", "m")] == theirs


@pytest.mark.parametrize("kind", AUXILIARIES, ids=lambda kind: kind.name)
def test_what_gitops_tools_wait_for_is_the_pods(kind: Kind) -> None:
    raw = AUXILIARIES[kind]
    told = serving(pod("a", revision_of(raw)), raw=raw)
    outcome = Outcome((Fault("Forbidden", QUOTA, auxiliary=True),))
    status = to_object(make_status(dataclasses.replace(told, outcome=outcome), NOW))
    assert kstatus({**raw, "status": status}) == "Current"


@pytest.mark.parametrize("kind", NEEDED, ids=lambda kind: kind.name)
async def test_pods_are_not_made_without_what_they_need_and_all_else_is(kind: Kind) -> None:
    raw = model(telemetry=METRICS, networkPolicy={})
    api = Refusing(kind)
    outcome = await settle(api, raw)
    assert made(api) == {each for each in asked(raw) if each[0] not in (kind.name, "Deployment")}
    found = decide(dataclasses.replace(serving(raw=raw), outcome=outcome))
    for condition in ("Ready", "Progressing"):
        assert found[condition].reason == "Forbidden"
        assert found[condition].message.startswith(f"{kind.name} m")
    assert found["AuxiliaryResourcesReady"].status == "True"


async def test_all_that_is_refused_is_told() -> None:
    raw = model(telemetry=METRICS, networkPolicy={})
    outcome = await settle(Refusing(kinds.SERVICE, kinds.NETWORK_POLICY, *AUXILIARIES), raw)
    found = decide(dataclasses.replace(serving(raw=raw), outcome=outcome))
    assert found["Ready"].message == f"NetworkPolicy m: {QUOTA}; Service m: {QUOTA}"
    beside = ("PodDisruptionBudget", "PodMonitor")
    assert found["AuxiliaryResourcesReady"].message == "; ".join(f"{kind} m: {QUOTA}" for kind in beside)


async def test_what_may_not_be_deleted_is_told_beside_the_pods() -> None:
    api = Refusing()
    await settle(api, model(telemetry=METRICS, networkPolicy={}))
    api.refused = {kinds.NETWORK_POLICY.plural}
    outcome = await settle(api, model())
    assert [(fault.message, fault.auxiliary) for fault in outcome.faults] == [
        (f"NetworkPolicy m: {QUOTA}", True)
    ]
    assert ("PodMonitor", "m") not in made(api)


async def test_revisions_stay_while_the_pods_cannot_be_changed() -> None:
    def changed(number: int) -> Object:
        raw = model()
        raw["spec"]["engine"]["env"] = [{"name": "APP_NUMBER", "value": str(number)}]
        return raw

    api = Refusing()
    for number in range(HISTORY_LIMIT + 2):
        await settle(api, changed(number))
    before, last = made(api), changed(HISTORY_LIMIT + 2)
    api.refused = {kinds.DEPLOYMENT.plural}
    await settle(api, last)
    await settle(api, last)
    assert before < made(api)
    api.refused = set()
    await settle(api, last)
    assert not before <= made(api)


def test_a_kind_beside_the_pods_that_cannot_be_seen_is_no_word_on_them() -> None:
    raw = model(telemetry=METRICS)
    told = serving(pod("a", revision_of(raw)), raw=raw)
    blind = {kinds.POD_MONITOR.name: "no right", kinds.WORKER_SET.name: "not asked for"}
    found = decide(dataclasses.replace(told, observed=dataclasses.replace(told.observed, blind=blind)))
    assert found["Ready"].status == "True"
    auxiliary = found["AuxiliaryResourcesReady"]
    assert (auxiliary.status, auxiliary.reason) == ("Unknown", "Forbidden")
    assert auxiliary.message == "the operator cannot list PodMonitors: no right"


def test_a_spec_that_cannot_be_run_says_nothing_of_what_stands_there() -> None:
    raw = model()
    raw["spec"]["engine"]["image"] = "vllm/vllm-openai:v0.1.0"
    auxiliary = decide(serving(raw=raw))["AuxiliaryResourcesReady"]
    assert (auxiliary.status, auxiliary.reason) == ("Unknown", "Incompatible")


async def test_a_refused_auxiliary_is_told_in_one_event() -> None:
    api = MemoryApi()
    api.objects[f"{kinds.MODEL.path('ns', 'm')}/status"] = {"metadata": {}}
    told = serving(pod("a", revision_of()))
    told = dataclasses.replace(told, outcome=Outcome((Fault("Forbidden", QUOTA, auxiliary=True),)))
    warned = list[tuple[str, str]]()
    status = make_status(told, NOW)
    await report(api, lambda _, reason, message: warned.append((reason, message)), told.observed, status)
    assert warned == [("Forbidden", QUOTA)]


@pytest.mark.parametrize(("again_s", "next_s"), [(rollover.LOOK_S / 2, rollover.LOOK_S / 2), (3600.0, 0.5)])
async def test_a_refusal_is_tried_again_and_slows_nothing_down(again_s: float, next_s: float) -> None:
    class Refused:
        async def reconcile(self, _: Key) -> None:
            raise ChildFaultError((Fault("Forbidden", "a", auxiliary=True), Fault("Forbidden", "b")), again_s)

    loops = Loops(Refused(), OperatorMetrics(), 1)  # type: ignore[arg-type]  # stands for one
    assert await loops._pass(Key("ns", "m"), 0.0, 0) == (1, next_s)
