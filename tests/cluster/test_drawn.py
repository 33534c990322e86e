"""Samples, and GuidedModels drawn at random, on a real API server: it takes them, their children and pods."""

import functools
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from devtools import golang
from hypothesis import HealthCheck, Phase, given, settings

from guided_operator.api import parse
from guided_operator.builders.pod import pod_template
from guided_operator.builders.pod_paths import Site
from guided_operator.kube.diff import differences
from support.cluster import Cluster, KubectlError
from support.drawn import FIELDS
from support.manifests import changed, children_of, minimal

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).parents[2]
SITE = Site("guidedmodel:1")
COUNT = 60
SAMPLES = [yaml.safe_load(file.read_text()) for file in sorted(ROOT.glob("manifests/samples/*.yaml"))]
# Of others: not every API server has them.
OPTIONAL = {"PodMonitor", "LeaderWorkerSet"}


@functools.cache
def drawn() -> list[dict[str, Any]]:
    """Return the samples, and then manifests that are the same at each run."""
    found = [*SAMPLES]

    @settings(
        max_examples=COUNT,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(FIELDS)
    def collect(fields: dict[str, Any]) -> None:
        found.append(changed(minimal(f"drawn-{len(found)}"), **fields))

    collect()
    if golang.kubernetes_version() == golang.OLDEST_KUBERNETES:
        return [each for each in found if "laims" not in json.dumps(each)]  # ResourceClaims are from 1.34 on
    return found


def tried(server: Cluster, items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return objects as the API server would store them; nothing is stored."""
    wanted = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
    answer = server.kubectl(
        *("create", "--dry-run=server", "--validate=strict", "-o", "json", "-f", "-"), stdin=wanted
    )
    found, at = [], 0
    while at < len(answer):  # one object behind the other
        item, end = json.JSONDecoder().raw_decode(answer, at)
        found.append(item)
        at = end + 1
    return found


def test_what_python_takes_the_server_takes_with_the_same_defaults(server: Cluster) -> None:
    for sent, stored in zip(drawn(), tried(server, drawn()), strict=True):
        assert parse(stored).spec == parse(sent).spec


def test_children_are_taken_and_come_back_as_they_were_sent(server: Cluster) -> None:
    children = [
        child for each in drawn() for child in children_of(parse(each), SITE) if child["kind"] not in OPTIONAL
    ]
    for child, live in zip(children, tried(server, children), strict=True):
        assert list(differences(child, live)) == [], child["kind"]


def test_no_pod_is_refused_under_the_restricted_standard(server: Cluster) -> None:
    with server.namespace("drawn-restricted") as namespace:
        server.kubectl("label", "ns", namespace, "pod-security.kubernetes.io/enforce=restricted")
        server.kubectl("create", "serviceaccount", "own", "-n", namespace)
        pods = [pod(pod_template(parse(each), SITE), namespace) for each in drawn()]
        assert len(tried(server, pods)) == len(pods)
        # And the standard is enforced there.
        with pytest.raises(KubectlError, match="violates PodSecurity"):
            tried(server, [{**pods[0], "spec": pods[0]["spec"] | {"securityContext": {}}}])


def pod(template: dict[str, Any], namespace: str) -> dict[str, Any]:
    """Return a pod of a template, with what this server has no objects for left out."""
    spec = template["spec"] | {"serviceAccountName": "own"}
    for part in ("runtimeClassName", "priorityClassName", "imagePullSecrets"):
        spec.pop(part, None)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**template["metadata"], "generateName": "drawn-", "namespace": namespace},
        "spec": spec,
    }
