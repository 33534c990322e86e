"""Builders of what the operator observes: `seen()`, changed by what the test is about."""

import dataclasses
from typing import Any

from guided_contract import names, status
from guided_operator.builders.pod_paths import Site
from guided_operator.kube import kinds
from guided_operator.kube.key import Key
from guided_operator.kube.pod_view import PodView
from guided_operator.reconcile.apply import Outcome
from guided_operator.reconcile.conditions.chains import decide
from guided_operator.reconcile.conditions.situation import Situation
from guided_operator.reconcile.observe import Observed
from guided_operator.reconcile.plan import Plan, plan
from guided_operator.watch.sidecar_status import Page

Object = dict[str, Any]
UID = "uid-of-the-model"
SITE = Site("registry.test/guidedmodel:1")


def model(**spec: Any) -> Object:
    engine = {"image": "vllm/vllm-openai:v0.32.0", "accelerator": {"type": "None"}}
    metadata = {"name": "m", "namespace": "ns", "uid": UID, "generation": 3}
    return {
        "apiVersion": "guidedmodel.io/v1alpha1",
        "kind": names.KIND,
        "metadata": metadata,
        "spec": {"model": {"uri": "file:///models/tiny"}, "engine": engine, **spec},
    }


def seen(raw: Object | None = None, **changes: Any) -> Observed:
    return Observed(key=Key("ns", "m"), model=raw or model(), **changes)


def planned(observed: Observed) -> Plan:
    return plan(observed, SITE)


def applied(observed: Observed, site: Any = SITE) -> Observed:
    """Return what is observed after a plan was written: its children as the API server has them."""
    children: dict[str, dict[str, Object]] = {kind: dict(items) for kind, items in observed.children.items()}
    for child in plan(observed, site).children:
        name = child["metadata"]["name"]
        old = children.get(child["kind"], {}).get(name, {"metadata": {"generation": 0}})
        stored = {**child, "metadata": {**child["metadata"], "uid": f"uid-{name}", "generation": 1}}
        if child["kind"] in (kinds.DEPLOYMENT.name, kinds.WORKER_SET.name):
            stored["status"] = old.get("status", {"observedGeneration": 1})
        children.setdefault(child["kind"], {})[name] = stored
    return dataclasses.replace(observed, children=children)


def pod(name: str, revision: str, **changes: Any) -> PodView:
    view = PodView(
        name=name,
        namespace="ns",
        uid=f"uid-{name}",
        version="1",
        revision=revision,
        group=name,
        node=0,
        nodes=1,
        ip="127.0.0.1",
        phase="Running",
        ready=True,
        terminating=False,
        unschedulable="",
        containers=(),
    )
    return dataclasses.replace(view, **changes)


def situation(observed: Observed, outcome: Outcome | None = None) -> Situation:
    return Situation(observed, planned(observed), outcome or Outcome())


def serving(*pods: PodView, raw: Object | None = None, **page: Any) -> Situation:
    """Return the situation of a model whose children are there, with these pods and this word of theirs."""
    told = Page(status.PodStatus(**{"ready": True, **page}))
    observed = applied(seen(raw))
    observed = dataclasses.replace(observed, pods=pods, pages={each.uid: told for each in pods})
    return situation(observed)


def telling(*told: status.PodStatus, raw: Object | None = None) -> Situation:
    """Return the situation of a model whose pods, m-0 and on, tell this, and are as ready as they say."""
    raw = raw or model()
    pods = tuple(pod(f"m-{number}", revision_of(raw), ready=one.ready) for number, one in enumerate(told))
    pages = {each.uid: Page(one) for each, one in zip(pods, told, strict=True)}
    return situation(dataclasses.replace(applied(seen(raw)), pods=pods, pages=pages))


def revision_of(raw: Object | None = None) -> str:
    return planned(seen(raw)).revision


def reason(found: Situation, kind: str) -> tuple[str, str]:
    finding = decide(found)[kind]
    return finding.status, finding.reason


def with_deployment(found: Situation, **changes: Any) -> Situation:
    known = found.workload or {}
    deployment = {**known, **changes, "metadata": known.get("metadata", {}) | changes.get("metadata", {})}
    children = {**found.observed.children, "Deployment": {"m": deployment}}
    return dataclasses.replace(found, observed=dataclasses.replace(found.observed, children=children))
