"""What stands around a model's pods: made when asked for, pruned when no longer, never worth a restart."""

import dataclasses
from typing import Any

import pytest

from guided_contract import names
from guided_operator.kube import kinds
from guided_operator.reconcile.conditions.chains import decide
from support.observed import applied, model, planned, pod, revision_of, seen, serving, situation

Object = dict[str, Any]
METRICS = {"metrics": {"interval": "1m", "labels": {"release": "p", names.LABEL_NAME: "other"}}}
NODES = {"tensor": 4, "nodes": 2}


def child(raw: Object, kind: str, name: str = "m") -> Object:
    [found] = [
        each
        for each in planned(seen(raw)).children
        if (each["kind"], each["metadata"]["name"]) == (kind, name)
    ]
    return found


def kinds_of(raw: Object) -> set[str]:
    return {each["kind"] for each in planned(seen(raw)).children}


class TestBuilders:
    def test_monitor_keeps_the_labels_that_it_is_found_by(self) -> None:
        monitor = child(model(telemetry=METRICS), "PodMonitor")
        assert monitor["metadata"]["labels"]["release"] == "p"
        assert monitor["metadata"]["labels"][names.LABEL_NAME] == "m"
        endpoints = monitor["spec"]["podMetricsEndpoints"]
        assert [each["port"] for each in endpoints] == ["sidecar", "http"]
        targets = [each["relabelings"][-1]["targetLabel"] for each in endpoints]
        assert targets == ["model", "model"], "alerts and dashboard tell models apart by it"

    def test_policy_opens_the_api_to_the_namespace_and_the_status_to_the_operator(self) -> None:
        spec = child(model(networkPolicy={}), "NetworkPolicy")["spec"]
        operator, public = spec["ingress"]
        [peer] = operator["from"]
        assert peer["namespaceSelector"]["matchLabels"] == {
            "kubernetes.io/metadata.name": "guidedmodel-system"
        }
        assert [each["port"] for each in operator["ports"]] == [8002]
        assert public["from"] == [{"podSelector": {}}]
        assert [each["port"] for each in public["ports"]] == [8000, 8002]

    def test_policy_for_nobody_is_no_policy_for_everybody(self) -> None:
        spec = child(model(networkPolicy={"allowFrom": []}), "NetworkPolicy")["spec"]
        assert all(rule["from"] for rule in spec["ingress"])
        assert not any(port["port"] == 8000 for rule in spec["ingress"] for port in rule["ports"])

    @pytest.mark.parametrize(
        ("around", "kind"),
        [({"networkPolicy": {}}, kinds.NETWORK_POLICY), ({"telemetry": METRICS}, kinds.POD_MONITOR)],
    )
    def test_what_stands_around_restarts_no_pod_and_goes_when_it_is_not_asked_for(
        self, around: Object, kind: kinds.Kind
    ) -> None:
        raw = model(**around)
        assert revision_of(raw) == revision_of()
        before = applied(seen(raw))
        assert planned(before).surplus == ()
        assert planned(dataclasses.replace(before, model=model())).surplus == ((kind, "m"),)


class TestSeveralNodes:
    def test_pods_are_groups_and_only_leaders_are_reached(self) -> None:
        raw = model(parallelism=NODES, replicas=3)
        assert "Deployment" not in kinds_of(raw)
        spec = child(raw, "LeaderWorkerSet", "m-nodes")["spec"]
        assert spec["replicas"] == 3
        assert spec["leaderWorkerTemplate"]["size"] == 2
        leader = {names.LABEL_NAME: "m", names.LABEL_NODE: "0"}
        assert child(raw, "Service")["spec"]["selector"] == leader
        headless = child(raw, "Service", "m-nodes")["spec"]
        assert (headless["clusterIP"], headless["publishNotReadyAddresses"]) == ("None", True)
        assert planned(seen(raw)).desired == 6

    def test_what_ranks_say_to_each_other_is_closed_to_others(self) -> None:
        own, public = child(model(parallelism=NODES), "NetworkPolicy")["spec"]["ingress"]
        assert own == {"from": [{"podSelector": {"matchLabels": {names.LABEL_NAME: "m"}}}]}
        assert [each["port"] for each in public["ports"]] == [8000, 8002]

    def test_ready_is_every_pod_of_every_group(self) -> None:
        raw = model(parallelism=NODES, replicas=2)
        key = revision_of(raw)
        pods = [pod(f"m-{g}-{n}", key, group=str(g), node=n) for g in range(2) for n in range(2)]
        assert decide(serving(*pods, raw=raw))["Ready"].status == "True"
        lame = [*pods[:3], dataclasses.replace(pods[3], ready=False)]
        found = decide(serving(*lame, raw=raw))["Ready"]
        assert (found.status, found.message) == ("False", "3 of 4 pods are ready")


class TestMissingApi:
    def test_group_cannot_be_made_and_says_so(self) -> None:
        observed = dataclasses.replace(seen(model(parallelism=NODES)), absent=frozenset({"LeaderWorkerSet"}))
        found = decide(situation(observed))
        for condition in ("Ready", "Progressing", "Compatible"):
            assert (found[condition].status, found[condition].reason) == ("False", "APIMissing")
            assert "leaderworkerset.x-k8s.io/v1" in found[condition].message

    def test_model_serves_without_what_only_looks_after_it(self) -> None:
        raw = model(telemetry=METRICS)
        told = serving(pod("a", revision_of(raw)), raw=raw)
        observed = dataclasses.replace(told.observed, absent=frozenset({"LeaderWorkerSet", "PodMonitor"}))
        found = decide(dataclasses.replace(told, observed=observed))
        assert found["Ready"].status == found["Compatible"].status == "True"
        auxiliary = found["AuxiliaryResourcesReady"]
        assert (auxiliary.status, auxiliary.reason) == ("False", "APIMissing")
        assert "PodMonitor (monitoring.coreos.com/v1)" in auxiliary.message
        assert "LeaderWorkerSet" not in auxiliary.message, "nobody asked for it"
