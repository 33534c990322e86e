"""The CRDs of others that the operator uses where they are installed.

The Prometheus operator's are its own. That of LeaderWorkerSet is written for these tests, after
kubernetes-sigs/lws (Apache-2.0): names and subresources, no more; where a folder shared/data/crds stands
beside the repository, the real ones in it are taken, and so their schemas judge what the operator writes.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from devtools import golang

from support.cluster import Cluster
from support.waiting import eventually

Object = dict[str, Any]
REAL = Path(__file__).resolve().parents[3] / "shared/data/crds"
MONITORING = "monitoring.coreos.com"
# Plural -> group, version, kind.
APIS = {
    "leaderworkersets": ("leaderworkerset.x-k8s.io", "v1", "LeaderWorkerSet"),
    "podmonitors": (MONITORING, "v1", "PodMonitor"),
    "prometheusrules": (MONITORING, "v1", "PrometheusRule"),
}


def crd(plural: str) -> Object:
    """Return a CRD that takes any spec."""
    group, version, kind = APIS[plural]
    any_spec = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    scale = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}
    served = {"name": version, "served": True, "storage": True, "schema": {"openAPIV3Schema": any_spec}}
    annotations = {"api-approved.kubernetes.io": "unapproved, for tests"}
    names = {"kind": kind, "plural": plural, "singular": kind.lower(), "listKind": f"{kind}List"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}", "annotations": annotations},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": names,
            "versions": [served | {"subresources": {"status": {}, "scale": scale}}],
        },
    }


@contextmanager
def installed(cluster: Cluster, *plurals: str) -> Iterator[None]:
    """Have APIs installed while the context lasts."""
    names = [f"{plural}.{APIS[plural][0]}" for plural in plurals]
    for plural in plurals:
        # Some are larger than an annotation, which is where a client-side apply would keep them.
        cluster.kubectl("create", "-f", "-", stdin=_text(plural))
    try:
        for name in names:
            eventually(lambda name=name: cluster.serves(name), what=f"{name} is served")
        yield
    finally:
        cluster.kubectl("delete", "crd", *names, "--wait=false")


def _text(plural: str) -> str:
    if APIS[plural][0] == MONITORING:
        return (golang.prometheus_crds() / f"{MONITORING}_{plural}.yaml").read_text()
    real = REAL / f"{plural}.yaml"
    return real.read_text() if real.exists() else json.dumps(crd(plural))
