"""What is said of a model in each situation: conditions with their reasons, and the rest of the status."""

import dataclasses
import datetime as dt
from typing import Any

import pytest

from guided_contract import status
from guided_operator.reconcile.apply import Fault, Outcome
from guided_operator.reconcile.conditions.inputs import Situation
from guided_operator.reconcile.observe import Observed
from guided_operator.reconcile.report import make_status, report, to_object
from guided_operator.watch.sidecar_status import Page
from support.memory_api import MemoryApi
from support.observed import applied, model, pod, reason, revision_of, seen, serving, situation

NOW = dt.datetime(2026, 11, 21, 12, tzinfo=dt.UTC)
NEW = revision_of()
OLD = "0ld0ld0ld0"


def unheard(_about: object, _reason: str, _message: str) -> None:
    """Warn nobody."""


def test_conflict_and_blindness_come_before_pods() -> None:
    found = serving(pod("a", NEW))
    outcome = Outcome((Fault("NameConflict", "Service m exists"),))
    assert reason(dataclasses.replace(found, outcome=outcome), "Ready") == ("False", "NameConflict")
    blind = dataclasses.replace(found.observed, blind={"Pod": "no right to list pods"})
    assert reason(dataclasses.replace(found, observed=blind), "Ready") == ("Unknown", "Forbidden")


def test_model_that_turned_invalid_keeps_serving_and_says_both() -> None:
    raw = model()
    raw["spec"]["engine"]["image"] = "vllm/vllm-openai:v0.1.0"
    observed = dataclasses.replace(applied(seen()), model=raw, pods=(pod("a", NEW),))
    found = situation(observed)
    assert reason(found, "Compatible") == ("False", "Invalid")
    assert reason(found, "Ready") == ("False", "Incompatible")
    assert reason(found, "Available") == ("True", "SomePodsReady")
    nothing_left = situation(dataclasses.replace(observed, pods=()))
    assert reason(nothing_left, "Available") == ("False", "Incompatible"), "replicas is not 0"


def test_status_of_an_invalid_edit_says_what_runs() -> None:
    image = "docker.io/vllm/vllm-openai@sha256:" + 64 * "a"
    served = dataclasses.replace(
        applied(seen()),
        pods=(
            dataclasses.replace(pod("a", NEW), image=image),
            dataclasses.replace(pod("b", OLD), ready=False),
            dataclasses.replace(pod("c", OLD), ready=False),
        ),
    )
    right = make_status(situation(served), NOW)
    for change in ({"engine": {"image": "vllm/vllm-openai:v0.1.0"}}, {"model": {"uri": 5}}):
        raw = model()
        raw["spec"] |= change
        found = situation(dataclasses.replace(served, model=raw))
        made = make_status(found, NOW)
        assert reason(found, "Compatible") == ("False", "Invalid")
        for field in ("url", "revision", "replicas", "ready_replicas", "updated_replicas", "resolved"):
            assert getattr(made, field) == getattr(right, field), field
        assert (made.revision, made.resolved.image) == (NEW, image)
        assert made.url


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


UNMEASURED = status.LibraryStatus(name="llguidance", version="1.7.9", measured="1.7.6")
GUIDED = [
    pytest.param(serving(pod("a", NEW)), ("True", "Active"), id="proven"),
    pytest.param(serving(), ("Unknown", "Pending"), id="nobody to ask"),
    pytest.param(
        serving(pod("a", NEW), unsupported="vLLM 0.1"), ("False", "PluginInactive"), id="plugin inactive"
    ),
    pytest.param(
        serving(pod("a", NEW), ready=False, reason="ProbeFailed"), ("False", "ProbeFailed"), id="probe"
    ),
    pytest.param(
        serving(pod("a", NEW), ready=False, reason="TokenizersDiffer"),
        ("False", "TokenizersDiffer"),
        id="another tokenizer",
    ),
    pytest.param(
        serving(pod("a", NEW), unmeasured=[UNMEASURED]), ("True", "LibrariesUnmeasured"), id="another library"
    ),
    pytest.param(
        serving(pod("a", NEW), ready=False, reason="Draining"), ("False", "Draining"), id="a pod that goes"
    ),
    pytest.param(serving(pod("a", NEW), ready=False, reason="x y"), ("False", "NotReady"), id="untrusted"),
    pytest.param(serving(pod("a", NEW), desync="rank 1"), ("False", "Desync"), id="ranks disagreed"),
    pytest.param(
        serving(pod("a", NEW), exhausted="x"), ("False", "ServiceExhausted"), id="a budget that is spent"
    ),
    pytest.param(
        serving(pod("a", NEW), ready=False, reason="EngineStalled", desync="rank 1"),
        ("False", "EngineStalled"),
        id="the worse first",
    ),
    pytest.param(
        serving(pod("a", NEW), raw=model(guidedDecoding={"placement": "Scheduler"})),
        ("False", "SchedulerPlacement"),
        id="as asked for",
    ),
]


@pytest.mark.parametrize(("found", "expected"), GUIDED)
def test_guided_decoding(found: Situation, expected: tuple[str, str]) -> None:
    assert reason(found, "GuidedDecoding") == expected


def test_silent_sidecar_of_a_ready_pod_is_told() -> None:
    found = serving(pod("a", NEW))
    observed = dataclasses.replace(found.observed, pages={"uid-a": Page(None, "no answer")})
    assert reason(dataclasses.replace(found, observed=observed), "GuidedDecoding") == (
        "Unknown",
        "SidecarUnreachable",
    )


def test_transition_time_stays_while_the_status_stays() -> None:
    first = to_object(make_status(serving(pod("a", NEW, ready=False)), NOW))
    later = NOW + dt.timedelta(hours=1)
    found = serving(pod("a", NEW, ready=False), raw={**model(), "status": first})
    assert to_object(make_status(found, later)) == first
    found = serving(pod("a", NEW), raw={**model(), "status": first})
    times = {each.type: each.last_transition_time for each in make_status(found, later).conditions}
    assert times["Ready"] == "2026-11-21T13:00:00Z"
    assert times["Compatible"] == "2026-11-21T12:00:00Z"


def test_counts_and_selector() -> None:
    found = serving(pod("a", NEW), pod("b", OLD), pod("c", OLD, terminating=True), pod("d", NEW, ready=False))
    told = make_status(found, NOW)
    assert (told.replicas, told.ready_replicas, told.updated_replicas) == (3, 2, 2)
    assert told.selector == "guidedmodel.io/name=m"
    assert told.observed_generation == 3


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

    async def told(reason: str) -> list[tuple[str, str]]:
        nonlocal raw
        said: dict[str, object] = {"ready": not reason, "reason": reason, "message": "why"}
        if reason == "ServiceExhausted":
            said = {"exhausted": "why"}
        found = serving(pod("a", NEW, ready=said.get("ready", True)), raw=raw, **said)
        await report(api, warn, found.observed, make_status(found, NOW))
        raw = {**model(), "status": to_object(make_status(found, NOW))}
        return warned

    assert not await told("")
    [(reason, message)] = await told("ServiceExhausted")
    assert reason == "ServiceExhausted"
    assert "pod a: why" in message
    assert len(await told("ServiceExhausted")) == 1
    assert len(await told("ProbeFailed")) == 1
    assert len(await told("ServiceExhausted")) == 2
