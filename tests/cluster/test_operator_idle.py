"""Nothing is written where nothing differs: after anything valid was applied, at rest, when started anew."""

import asyncio
import datetime as dt
import itertools
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from kubernetes.aio.config import kube_config

from guided_contract import names
from guided_operator.api import ManifestError, parse
from guided_operator.builders.pod_paths import Site
from guided_operator.kube import kinds
from guided_operator.kube.api_errors import ObjectInvalid, ObjectNotFound
from guided_operator.kube.apiserver import ApiServer
from guided_operator.kube.key import Key
from guided_operator.policy.spec_checks import check
from guided_operator.reconcile.apply import Applier
from guided_operator.reconcile.conditions.inputs import Situation
from guided_operator.reconcile.observe import Observed
from guided_operator.reconcile.plan import plan
from guided_operator.reconcile.report import make_status, report
from support.audit import Audit
from support.cluster import Cluster
from support.drawn import FIELDS
from support.manifests import changed, minimal
from support.operator_process import install, running
from support.resources import model
from support.waiting import eventually

pytestmark = pytest.mark.cluster
Object = dict[str, Any]
Children = dict[tuple[str, str], Object]
MODELS = int(os.environ.get("IDLE_MODELS", "24"))
REST_S = 6.0
CHANGES = 30
MOST_PASSES = 20
VARIETY: tuple[Object, ...] = (
    {},
    {"replicas": 0},
    {"telemetry": {"endpoint": "http://collector:4318"}},
    {"speculative": {"method": "NGram", "numTokens": 3}},
    {"networkPolicy": {}},
    {"resources": {"requests": {"cpu": "1500m", "memory": "1024Mi"}}},
    {"guidedDecoding": {"grammars": [
        {"name": "a", "kind": "Regex", "configMapKeyRef": {"name": "none", "key": "a"}}
    ]}},
)  # fmt: skip


# What stands around the pods; and few of those, for the controllers make them.
AROUND = st.fixed_dictionaries(
    {"replicas": st.integers(0, 1)},
    optional={
        "networkPolicy": st.sampled_from([{}, {"allowFrom": [{"podLabels": {"app": "gateway"}}]}]),
        "rollout": st.sampled_from([{"maxSurge": "25%", "maxUnavailable": 0}, {"paused": True}]),
        "drain": st.just({"timeout": "90s"}),
        "parallelism": st.sampled_from([{"tensor": 2}, {"tensor": 2, "nodes": 2}]),
    },
)
SPECS = st.tuples(FIELDS, AROUND).map(lambda drawn: changed(minimal(), **(drawn[0] | drawn[1]))["spec"])


def test_idle_no_write_at_rest_nor_on_restart(api_server: Cluster, namespace: str, tmp_path: Path) -> None:
    install(api_server)
    models = [
        model(namespace, f"m{number}", **spec)
        for number, spec in zip(range(MODELS), itertools.cycle(VARIETY), strict=False)
    ]
    begun = Audit(api_server)
    with running(api_server, tmp_path, "first", GUIDEDMODEL_NAMESPACES=namespace) as first:
        listed = {"apiVersion": "v1", "kind": "List", "items": models}
        api_server.kubectl("create", "-f", "-", stdin=json.dumps(listed), timeout_s=300)

        def looked_at() -> bool:
            return first.figure("guidedmodel_operator_resources", condition="Ready") == MODELS

        eventually(looked_at, timeout_s=60 + MODELS / 5, what="all have been looked at")
        # Controllers and the scheduler take their time to say what they have to say of the children.
        resting = eventually(lambda: rested(api_server), timeout_s=60 + MODELS / 5, what="it comes to rest")
        assert len([entry for entry in begun.writes() if entry.code == 201]) > 6 * MODELS
        renewals = [entry for entry in resting.entries() if entry.resource == "leases"]
        assert 1 <= len(renewals) <= REST_S
        passes = first.figure("guidedmodel_operator_reconcile_seconds_count")
    restart = Audit(api_server)
    with running(api_server, tmp_path, "second", GUIDEDMODEL_NAMESPACES=namespace) as second:

        def looked_at_anew() -> bool:
            return second.figure("guidedmodel_operator_resources", condition="Ready") == MODELS

        eventually(looked_at_anew, timeout_s=60 + MODELS / 5, what="all have been looked at anew")
        assert second.figure("guidedmodel_operator_reconcile_seconds_count") >= MODELS
        assert second.figure("guidedmodel_operator_unsettled_applies_total") == 0
    assert restart.writes() == []
    assert passes >= MODELS


def test_idle_changes_of_a_child_that_come_together_are_one_pass(
    api_server: Cluster, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a Deployment's and its pods' do while these start."""
    connect_to(api_server, monkeypatch)
    install(api_server)
    with running(api_server, tmp_path, "only", GUIDEDMODEL_NAMESPACES=namespace) as operator:
        api_server.kubectl("create", "-f", "-", stdin=json.dumps(model(namespace, "m")))
        eventually(lambda: rested(api_server), what="it comes to rest")
        before = operator.figure("guidedmodel_operator_reconcile_seconds_count")
        asyncio.run(_annotate(kinds.DEPLOYMENT.path(namespace, "m"), times=CHANGES))
        time.sleep(REST_S)
        passes = operator.figure("guidedmodel_operator_reconcile_seconds_count") - before
    assert 1 <= passes < CHANGES, passes


async def _annotate(path: str, times: int) -> None:
    async with ApiServer.connected() as api:
        for number in range(times):
            await api.patch(path, {"metadata": {"annotations": {"x.io/n": str(number)}}}, kind="merge")


def rested(cluster: Cluster) -> Audit | None:
    """Watch the operator for a while, and return what it asked for if it wrote nothing."""
    audit = Audit(cluster)
    time.sleep(REST_S)
    return None if audit.writes() else audit


class Recording(ApiServer):
    """The real API server, with a list of what was written."""

    writes: list[tuple[str, str]]

    async def create(self, path: str, *args: Any, **kwargs: Any) -> Object:
        self.writes.append(("create", path))
        return await super().create(path, *args, **kwargs)

    async def patch(self, path: str, *args: Any, **kwargs: Any) -> Object:
        self.writes.append(("patch", path))
        return await super().patch(path, *args, **kwargs)

    async def delete(self, path: str, *args: Any, **kwargs: Any) -> None:
        self.writes.append(("delete", path))
        await super().delete(path, *args, **kwargs)


class World:
    """One pass after the other over a model, without a watch between."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self._cluster = cluster
        self._namespace = namespace
        self._names = (f"p{number}" for number in itertools.count())
        self._loop = asyncio.new_event_loop()
        self._connected = Recording.connected()
        self._api = self._loop.run_until_complete(self._connected.__aenter__())

    def close(self) -> None:
        self._loop.run_until_complete(self._connected.__aexit__(None, None, None))
        self._loop.close()

    def settle_twice(self, spec: Object) -> list[tuple[str, str]]:
        """Return what the second of two passes over a new model wrote.

        Where a controller has changed a child between them its status may follow; then another pass counts.
        """
        return self._loop.run_until_complete(self._settle_twice(next(self._names), spec))

    async def _settle_twice(self, name: str, spec: Object) -> list[tuple[str, str]]:
        self._api.writes = []
        body = {**model(self._namespace, name), "spec": spec}
        try:
            assume(not list(check(parse(body))))
            await self._api.create(kinds.model_path(self._namespace, ""), body)
        except (ManifestError, ObjectInvalid):
            return assume(False)  # a rule refuses it
        _, known = await self._pass(name)
        for _ in range(MOST_PASSES):
            self._api.writes.clear()
            seen, left = await self._pass(name)
            follows = seen != known and all(path.endswith("/status") for _, path in self._api.writes)
            if not (self._api.writes and follows):
                return self._api.writes
            known = left
        raise AssertionError("the children never came to rest")

    async def _pass(self, name: str) -> tuple[Children, Children]:
        """Make one pass, remembering nothing, as after a restart; return the children seen, and as left."""
        key = Key(self._namespace, name)
        path = kinds.model_path(*key)
        children: dict[str, dict[str, Object]] = {}
        absent = set()
        for kind in kinds.CHILDREN:
            if kind is kinds.POD:
                continue
            params = {"labelSelector": f"{names.LABEL_NAME}={name}"}
            try:
                found = await self._api.read(kind.path(self._namespace), params=params)
            except ObjectNotFound:
                absent.add(kind.name)
                continue
            children[kind.name] = {item["metadata"]["name"]: kind.project(item) for item in found["items"]}
        observed = Observed(
            key=key, model=await self._api.read(path), children=children, absent=frozenset(absent)
        )
        wanted = plan(observed, Site("registry.test/guidedmodel:1"))
        outcome = await Applier(self._api, lambda *_: None).apply(observed, wanted)
        assert outcome.faults == ()
        told = Situation(observed, wanted, outcome)
        status = make_status(told, dt.datetime.now(dt.UTC))
        await report(self._api, lambda *_: None, observed, status)
        seen = {(kind, child): item for kind, named in children.items() for child, item in named.items()}
        return seen, {**seen, **outcome.live}


def connect_to(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    # kubernetes.aio has read KUBECONFIG when it was imported.
    monkeypatch.setattr(kube_config, "KUBE_CONFIG_DEFAULT_LOCATION", str(cluster.kubeconfig))


@pytest.fixture
def world(api_server: Cluster, namespace: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    connect_to(api_server, monkeypatch)
    install(api_server)
    made = World(api_server, namespace)
    yield made
    made.close()


@settings(
    derandomize=True,
    max_examples=int(os.environ.get("IDLE_EXAMPLES", "20")),
    suppress_health_check=list(HealthCheck),
)
@given(spec=SPECS)
def test_idle_second_pass_over_anything_valid_has_nothing_to_do(world: World, spec: Object) -> None:
    assert world.settle_twice(spec) == []
