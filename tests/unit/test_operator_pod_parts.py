"""What nobody may have of a pod, though the schema says nothing of it: `spec.pod`."""

import datetime as dt
import json
from typing import Any

import pytest

from guided_operator.api import ManifestError, parse
from guided_operator.policy.spec_checks import check
from support.manifests import changed, guided_model, minimal


@pytest.mark.parametrize(
    "volume",
    [
        {"hostPath": {"path": "/"}},
        {"emptyDir": {}, "hostPath": {"path": "/"}},
        {"secret": {"secretName": "s"}, "emptyDir": {}},
        {"configMap": {"name": "a"}, "x": 1},
        {"projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}},
        {"csi": {"driver": "a"}},
        {},
    ],
)
def test_volumes_are_of_the_namespace(volume: dict[str, Any]) -> None:
    gm = guided_model(pod={"volumes": [{"name": "a", **volume}]})
    [problem] = check(gm)
    assert problem.field == "spec.pod.volumes[0]"
    assert "exactly one of persistentVolumeClaim, configMap, secret, emptyDir" in problem.message


@pytest.mark.parametrize("part", ["labels", "annotations"])
def test_keys_of_the_operator_and_the_cluster_are_theirs(part: str) -> None:
    reserved = ["guidedmodel.io/name", "a.guidedmodel.io/x", "A.K8S.io/x", "apps.k8s.io/x"]
    reserved += ["leaderworkerset.sigs.k8s.io/worker-index"]
    reserved += ["container.apparmor.security.beta.kubernetes.io/engine"]
    free = ["cluster-autoscaler.kubernetes.io/x", "notkubernetes.io/x", "kubernetes.io", "a", "x.io/k8s.io"]
    gm = guided_model(pod={part: dict.fromkeys([*free, *reserved], "x")})
    found = [each.message.partition(" ")[0] for each in check(gm) if each.field == f"spec.pod.{part}"]
    assert found == reserved


@pytest.mark.parametrize(
    "part", [{"a": [[[]]] * 20_000}, {"a": json.loads("[" * 400 + "]" * 400)}, {"a": dt.date(2026, 1, 1)}]
)
def test_a_part_of_a_pod_is_settings_and_no_data(part: dict[str, Any]) -> None:
    with pytest.raises(ManifestError, match=r"spec\.pod\.affinity: (is larger|must be JSON)"):
        parse(changed(minimal(), pod={"affinity": part}))
