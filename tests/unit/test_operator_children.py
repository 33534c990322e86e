"""What stands around a model's pods: made when asked for, pruned when no longer, never worth a restart."""

import dataclasses
from typing import Any

import pytest

from guided_contract import names
from guided_operator.kube import kinds
from guided_operator.reconcile.apply import Outcome
from guided_operator.reconcile.conditions.chains import decide
from guided_operator.reconcile.conditions.inputs import Situation
from support.observed import UID, applied, model, planned, pod, revision_of, seen, serving

Object = dict[str, Any]
HPA = {"maxReplicas": 8, "hpa": {"podMetrics": [{"name": "waiting", "averageValue": "5"}]}}
KEDA = {"minReplicas": 0, "maxReplicas": 8, "keda": {"triggers": [{"type": "cron", "metadata": {"a": "b"}}]}}
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
    def test_autoscaler_targets_the_model_itself(self) -> None:
        target = {"apiVersion": "guidedmodel.io/v1alpha1", "kind": "GuidedModel", "name": "m"}
        hpa = child(model(autoscaling=HPA), "HorizontalPodAutoscaler")["spec"]
        assert hpa["scaleTargetRef"] == target
        assert (hpa["minReplicas"], hpa["maxReplicas"]) == (1, 8)
        [metric] = hpa["metrics"]
        assert metric["pods"]["target"] == {"type": "AverageValue", "averageValue": "5"}
        scaled = child(model(autoscaling=KEDA), "ScaledObject")["spec"]
        assert scaled["scaleTargetRef"] == target
        assert (scaled["minReplicaCount"], scaled["maxReplicaCount"]) == (0, 8)
        assert scaled["triggers"] == [{"type": "cron", "metadata": {"a": "b"}}]

    def test_cpu_is_the_engines_alone(self) -> None:
        raw = model(autoscaling={"maxReplicas": 2, "hpa": {"cpuUtilization": 70}})
        [metric] = child(raw, "HorizontalPodAutoscaler")["spec"]["metrics"]
        assert metric["containerResource"]["container"] == "engine"

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
        "around",
        [
            {"autoscaling": HPA},
            {"autoscaling": KEDA},
            {"networkPolicy": {}},
            {"telemetry": METRICS},
        ],
    )
    def test_what_stands_around_restarts_no_pod(self, around: Object) -> None:
        assert revision_of(model(**around)) == revision_of()


class TestPruning:
    @pytest.mark.parametrize(
        ("spec", "kind"),
        [
            ({"autoscaling": HPA}, kinds.AUTOSCALER),
            ({"autoscaling": KEDA}, kinds.SCALED_OBJECT),
            ({"networkPolicy": {}}, kinds.NETWORK_POLICY),
            ({"telemetry": METRICS}, kinds.POD_MONITOR),
        ],
    )
    def test_what_is_no_longer_asked_for_goes(self, spec: Object, kind: kinds.Kind) -> None:
        before = applied(seen(model(**spec)))
        assert planned(before).surplus == ()
        assert planned(dataclasses.replace(before, model=model())).surplus == ((kind, "m"),)

    def test_what_is_not_ours_stays(self) -> None:
        before = applied(seen(model(networkPolicy={})))
        before.children["NetworkPolicy"]["m"]["metadata"]["ownerReferences"][0]["uid"] = "another"
        assert planned(dataclasses.replace(before, model=model())).surplus == ()

    def test_another_autoscaler_takes_the_place_of_the_one_before(self) -> None:
        before = applied(seen(model(autoscaling=HPA)))
        plan = planned(dataclasses.replace(before, model=model(autoscaling=KEDA)))
        assert plan.surplus == ((kinds.AUTOSCALER, "m"),)
        assert "ScaledObject" in {each["kind"] for each in plan.children}


class TestReplicas:
    """Handing over to and from an autoscaler never drops replicas."""

    @staticmethod
    def scaler(*, decided: bool, name: str = "m") -> Object:
        owner = [{"uid": UID, "controller": True}]
        status = {"conditions": [{"type": "ScalingActive", "status": str(decided)}]}
        return {"metadata": {"name": name, "ownerReferences": owner}, "spec": {}, "status": status}

    @staticmethod
    def five(raw: Object, blind: tuple[str, ...] = (), **children: Object) -> int:
        """Return the replicas wanted of a model that has five, and these children beside them."""
        observed = applied(seen(model(replicas=5)))
        known = {**observed.children, **{kind: {"x": each} for kind, each in children.items()}}
        unseen = dict.fromkeys(blind, "forbidden")
        return planned(dataclasses.replace(observed, model=raw, children=known, blind=unseen)).replicas

    @pytest.mark.parametrize("autoscaling", [HPA, KEDA])
    def test_they_stay_until_the_autoscaler_has_decided(self, autoscaling: Object) -> None:
        raw = model(autoscaling=autoscaling)  # without replicas, so that the server says 1
        assert self.five(raw) == 5
        assert self.five(raw, HorizontalPodAutoscaler=self.scaler(decided=False)) == 5
        assert self.five(raw, HorizontalPodAutoscaler=self.scaler(decided=True)) == 1

    def test_they_never_exceed_what_the_autoscaler_may_ask_for(self) -> None:
        assert self.five(model(autoscaling=HPA | {"maxReplicas": 3})) == 3

    def test_what_is_asked_for_is_never_less(self) -> None:
        assert self.five(model(replicas=7, autoscaling=HPA)) == 7
        assert planned(seen(model(replicas=2, autoscaling=HPA))).replicas == 2

    def test_none_is_nobodys_default_and_means_none(self) -> None:
        assert self.five(model(replicas=0, autoscaling=KEDA)) == 0

    def test_without_an_autoscaler_the_spec_says_it(self) -> None:
        assert self.five(model(replicas=3)) == 3
        assert self.five(model(), HorizontalPodAutoscaler=self.scaler(decided=False)) == 1

    def test_keda_that_cannot_be_seen_deciding_is_believed(self) -> None:
        scaled, blind = self.scaler(decided=False), ("HorizontalPodAutoscaler",)
        scaled["status"] = {"conditions": [{"type": "Ready", "status": "True"}]}
        assert self.five(model(autoscaling=KEDA), blind, ScaledObject=scaled) == 1
        assert self.five(model(autoscaling=KEDA), ScaledObject=scaled) == 5, "its autoscaler may come"
        scaled["status"]["conditions"][0]["status"] = "False"
        assert self.five(model(autoscaling=KEDA), blind, ScaledObject=scaled) == 5


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

    def test_gpus_are_those_of_a_node(self) -> None:
        raw = model(parallelism=NODES)
        del raw["spec"]["engine"]["accelerator"]
        template = child(raw, "LeaderWorkerSet", "m-nodes")["spec"]["leaderWorkerTemplate"]["workerTemplate"]
        [engine] = template["spec"]["containers"]
        assert engine["resources"]["limits"]["nvidia.com/gpu"] == "2"

    def test_ready_is_every_pod_of_every_group(self) -> None:
        raw = model(parallelism=NODES, replicas=2)
        key = revision_of(raw)
        pods = [pod(f"m-{g}-{n}", key, group=str(g), node=n) for g in range(2) for n in range(2)]
        assert decide(serving(*pods, raw=raw))["Ready"].status == "True"
        lame = [*pods[:3], dataclasses.replace(pods[3], ready=False)]
        found = decide(serving(*lame, raw=raw))["Ready"]
        assert (found.status, found.message) == ("False", "3 of 4 pods are ready")


class TestMissingApi:
    @staticmethod
    def findings(raw: Object, *missing: str) -> Object:
        observed = dataclasses.replace(seen(raw), absent=frozenset(missing))
        return decide(Situation(observed, planned(observed), Outcome()))

    def test_group_cannot_be_made_and_says_so(self) -> None:
        found = self.findings(model(parallelism=NODES), "LeaderWorkerSet")
        for condition in ("Ready", "Progressing", "Compatible"):
            assert (found[condition].status, found[condition].reason) == ("False", "APIMissing")
            assert "leaderworkerset.x-k8s.io/v1" in found[condition].message

    def test_model_serves_without_what_only_looks_after_it(self) -> None:
        raw = model(autoscaling=KEDA)
        told = serving(pod("a", revision_of(raw)), raw=raw)
        observed = dataclasses.replace(told.observed, absent=frozenset({"ScaledObject", "PodMonitor"}))
        found = decide(dataclasses.replace(told, observed=observed))
        assert found["Ready"].status == found["Compatible"].status == "True"
        auxiliary = found["AuxiliaryResourcesReady"]
        assert (auxiliary.status, auxiliary.reason) == ("False", "APIMissing")
        assert "ScaledObject (keda.sh/v1alpha1)" in auxiliary.message
        assert "PodMonitor" not in auxiliary.message, "nobody asked for it"

    def test_api_that_nobody_asked_for_is_not_missed(self) -> None:
        found = self.findings(model(), "LeaderWorkerSet", "ScaledObject", "PodMonitor")
        assert found["Compatible"].status == found["AuxiliaryResourcesReady"].status == "True"

    def test_right_that_nobody_needs_is_not_missed(self) -> None:
        blind = {"ScaledObject": "forbidden"}
        told = serving(pod("a", revision_of()))
        unseen = dataclasses.replace(told, observed=dataclasses.replace(told.observed, blind=blind))
        assert decide(unseen)["Ready"].status == "True"
