"""The status beside its conditions: what runs, where it is reached, since when, and what is written of it."""

import dataclasses
import datetime as dt
from typing import Any

import pytest

from guided_contract.status import PodStatus
from guided_operator.kube.pod_view import PodView, view
from guided_operator.reconcile.apply import Fault, Outcome
from guided_operator.reconcile.observe import Observed
from guided_operator.reconcile.report import make_status, report, to_object
from guided_operator.watch.sidecar_status import Page
from support.memory_api import MemoryApi
from support.observed import applied, model, pod, revision_of, seen, serving, situation, telling

NOW = dt.datetime(2026, 11, 21, 12, tzinfo=dt.UTC)
NEW = revision_of()
OLD = "0ld0ld0ld0"


def unheard(_about: object, _reason: str, _message: str) -> None:
    """Warn nobody."""


GROUPS = {"parallelism": {"nodes": 2, "tensor": 2}}
OLD_IMAGE = {"engine": {"image": "vllm/vllm-openai:v0.1.0"}}


REFUSED = {"resources": {"limits": {"foo": "1"}}}  # by the API server: the operator has no problem with it


@pytest.mark.parametrize(
    ("spec", "change", "fault"),
    [
        ({}, OLD_IMAGE, ""),
        ({}, {"model": {"uri": 5}}, ""),
        ({}, REFUSED, "ApplyRefused"),
        (GROUPS, REFUSED, "ApplyRefused"),
    ],
)
def test_status_goes_on_with_what_runs_while_an_edit_is_refused(
    spec: dict[str, Any], change: dict[str, Any], fault: str
) -> None:
    image, new = "docker.io/vllm/vllm-openai@sha256:" + 64 * "a", revision_of(model(**spec))
    pods = (
        pod("a", new, image=image),
        *(pod(name, OLD, ready=False) for name in "bc"),
    )
    pages = {"uid-a": Page(PodStatus(ready=True, versions={"vllm": "0.32.0"}))}
    served = dataclasses.replace(applied(seen(model(**spec))), pods=pods, pages=pages)
    right = make_status(situation(served), NOW)
    assert (right.revision, right.resolved.image) == (new, image)
    assert right.url
    outcome = Outcome((Fault(fault, "Deployment m: Invalid value: foo"),) if fault else ())
    edited = dataclasses.replace(served, model=model(**{**spec, **change}))
    made = make_status(situation(edited, outcome), NOW)
    for field in ("url", "revision", "replicas", "ready_replicas", "updated_replicas", "resolved"):
        assert getattr(made, field) == getattr(right, field), field
    conditions = {each.type: each for each in made.conditions}
    assert conditions["GuidedDecoding"].status == "True"
    assert (conditions["Ready"].status, conditions["Ready"].reason) == ("False", fault or "Incompatible")


@pytest.mark.parametrize(
    "edit", [{}, {"model": {"uri": 5}}, {**OLD_IMAGE, "parallelism": {"tensor": 4, "nodes": 4}}]
)
@pytest.mark.parametrize(("ready", "groups"), [((1, 1, 1, 0), 1), ((1, 0, 0, 1), 0), ((1, 1, 1, 1), 2)])
def test_a_group_is_ready_if_all_of_its_pods_are(
    edit: dict[str, Any], ready: tuple[int, ...], groups: int
) -> None:
    pods = tuple(grouped(number // 2, number % 2, ready=bool(each)) for number, each in enumerate(ready))
    found = dataclasses.replace(applied(seen(model(**GROUPS))), pods=pods)
    edited = dataclasses.replace(found, model=model(**{**GROUPS, **edit}))
    assert make_status(situation(edited), NOW).ready_replicas == groups


def grouped(group: int, node: int, *, ready: bool) -> PodView:
    """Return a pod of a group of two as the LeaderWorkerSet's controller makes it."""
    about = "leaderworkerset.sigs.k8s.io"
    labels = {f"{about}/group-index": f"{group}", f"{about}/worker-index": f"{node}"}
    name = f"m-nodes-{group}-{node}"
    metadata = {"name": name, "namespace": "ns", "uid": name, "resourceVersion": "1", "labels": labels}
    status = {"conditions": [{"type": "Ready", "status": str(ready)}], "phase": "Running"}
    return view(
        {"metadata": {**metadata, "annotations": {f"{about}/size": "2"}}, "spec": {}, "status": status}
    )


def test_url_is_of_a_service_of_ours() -> None:
    """A stranger's Service of that name was told as where clients reach the model."""
    foreign = {"kind": "Service", "metadata": {"name": "m", "namespace": "ns", "uid": "s"}}
    ours = applied(seen())
    refused = Outcome((Fault("NameConflict", "Service m exists"),))

    def told(found: Observed, outcome: Outcome | None = None) -> str:
        return make_status(situation(found, outcome), NOW).url

    for services in ({"m": foreign}, {}):
        children = {**ours.children, "Service": services}
        assert told(dataclasses.replace(ours, children=children), refused) == ""
    unseen = dataclasses.replace(ours, children={}, blind={"Service": "no right"})
    assert told(ours) == told(unseen) == told(seen(), Outcome(live=written(ours, "Service")))
    assert told(ours).startswith("http://m.")


def written(observed: Observed, kind: str) -> dict[tuple[str, str], Any]:
    """Return the children of a kind as a pass that has just made them knows them."""
    return {(kind, name): child for name, child in observed.children[kind].items()}


def test_transition_time_stays_while_the_status_stays() -> None:
    first = to_object(make_status(serving(pod("a", NEW, ready=False)), NOW))
    later = NOW + dt.timedelta(hours=1)
    found = serving(pod("a", NEW, ready=False), raw={**model(), "status": first})
    assert to_object(make_status(found, later)) == first
    found = serving(pod("a", NEW), raw={**model(), "status": first})
    times = {each.type: each.last_transition_time for each in make_status(found, later).conditions}
    assert times["Ready"] == "2026-11-21T13:00:00Z"
    assert times["Compatible"] == "2026-11-21T12:00:00Z"


async def test_unchanged_status_is_not_written() -> None:
    api = MemoryApi()
    path = "/apis/guidedmodel.io/v1alpha1/namespaces/ns/guidedmodels/m/status"
    api.objects[path] = {"metadata": {}}
    found = serving(pod("a", NEW))
    assert await report(api, unheard, found.observed, make_status(found, NOW))
    assert api.writes == [("json", path)]
    told = {**model(), "status": to_object(make_status(found, NOW))}
    later = serving(pod("a", NEW), raw=told)
    assert not await report(api, unheard, later.observed, make_status(later, NOW + dt.timedelta(days=1)))
    assert api.writes == [("json", path)]


async def test_a_spent_restart_budget_is_told_in_one_event() -> None:
    api, raw, warned = MemoryApi(), model(), list[tuple[str, str]]()
    api.objects["/apis/guidedmodel.io/v1alpha1/namespaces/ns/guidedmodels/m/status"] = {"metadata": {}}

    def warn(about: dict[str, Any], reason: str, message: str) -> None:
        assert about["metadata"]["uid"] == raw["metadata"]["uid"]
        warned.append((reason, message))

    async def told(reason: str, **said: Any) -> list[tuple[str, str]]:
        nonlocal raw
        found = telling(PodStatus(ready=not reason, reason=reason, message="why", **said), raw=raw)
        await report(api, warn, found.observed, make_status(found, NOW))
        raw = {**model(), "status": to_object(make_status(found, NOW))}
        return warned

    async def spent() -> list[tuple[str, str]]:
        return await told("", exhausted="why")

    assert not await told("")
    [(reason, message)] = await spent()
    assert reason == "ServiceExhausted"
    assert "pod m-0: why" in message
    assert len(await spent()) == 1
    assert len(await told("ProbeFailed")) == 1
    assert len(await spent()) == 2
