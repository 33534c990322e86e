"""What stands beside the pods may be refused: it is told, tried again, and holds up nothing else."""

import dataclasses
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
from guided_operator.kube.kinds import Kind
from guided_operator.reconcile.apply import Applier, Outcome
from guided_operator.reconcile.conditions.chains import decide
from support.memory_api import MemoryApi
from support.observed import model, planned, pod, revision_of, seen, serving

Object = dict[str, Any]
METRICS = {"metrics": {"labels": {"release": "p"}}}
AUXILIARIES = {
    kinds.DISRUPTION_BUDGET: model(),
    kinds.POD_MONITOR: model(telemetry=METRICS),
}
NEEDED = (kinds.REVISION, kinds.CONFIG_MAP, kinds.NETWORK_POLICY)
QUOTA = "exceeded quota: nothing-beside, requested: count=1, used: 0, limited: 0"


class Refusing(MemoryApi):
    """Refuses every write of these kinds."""

    def __init__(self, *refused: Kind, error: type[ApiError] = AccessForbidden, status: int = 403) -> None:
        super().__init__()
        self.refused = {kind.plural for kind in refused}
        self.error = error(QUOTA, status=status)

    def _fail(self, verb: str, path: str) -> None:
        if verb != "read" and self.refused & set(path.split("/")):
            raise self.error


async def settle(api: MemoryApi, raw: Object) -> Outcome:
    """Apply what is planned for a model whose children are those in `api`."""
    observed = seen(raw, children=api.children())
    return await Applier(api, lambda *_: None).apply(observed, planned(observed))


def made(api: MemoryApi) -> set[tuple[str, str]]:
    return {(each["kind"], each["metadata"]["name"]) for each in api.objects.values()}


def asked(raw: Object) -> set[tuple[str, str]]:
    return {(each["kind"], each["metadata"]["name"]) for each in planned(seen(raw)).children}


@pytest.mark.parametrize(
    ("error", "status", "reason"),
    [
        (AccessForbidden, 403, "Forbidden"),
        (ObjectInvalid, 422, "ApplyRefused"),
        (ServerUnavailable, 500, "ApplyRefused"),  # a webhook that cannot be called
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


def test_a_kind_beside_the_pods_that_cannot_be_seen_is_no_word_on_them() -> None:
    raw = model(telemetry=METRICS)
    told = serving(pod("a", revision_of(raw)), raw=raw)
    blind = {kinds.POD_MONITOR.name: "no right", kinds.WORKER_SET.name: "not asked for"}
    found = decide(dataclasses.replace(told, observed=dataclasses.replace(told.observed, blind=blind)))
    assert found["Ready"].status == "True"
    auxiliary = found["AuxiliaryResourcesReady"]
    assert (auxiliary.status, auxiliary.reason) == ("Unknown", "Forbidden")
    assert auxiliary.message == "the operator cannot list PodMonitors: no right"
