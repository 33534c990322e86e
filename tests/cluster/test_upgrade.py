"""From one release to the next and back: chart, CRD and operator change, and no pod does.

The release before is the commit below: the chart is installed by helm as it was then, and its operator runs
from its own source, with what its chart lets it do.
"""

import json
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from devtools import chart
from devtools.crd import CRD_NAME, custom_resource_definition

from support.cluster import Cluster, KubectlError
from support.kubelet import Kubelet
from support.operator_process import CRD, NAMESPACE, POLICY, RBAC, USERS, running
from support.resources import await_condition, deployment, environment, items
from support.resources import model as newest
from support.waiting import eventually

pytestmark = pytest.mark.cluster
Object = dict[str, Any]
PREVIOUS = "744165eb50"
RELEASE = "guidedmodel"


@pytest.fixture(scope="module")
def previous(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the release before."""
    folder = tmp_path_factory.mktemp("previous")
    archive = f"git archive {PREVIOUS} charts operator engine | tar -x -C {folder}"
    if subprocess.run(
        ["bash", "-o", "pipefail", "-c", archive], cwd=chart.ROOT, check=False, timeout=60
    ).returncode:
        pytest.skip(f"this checkout lacks the release before: git fetch origin {PREVIOUS}")
    return folder


@pytest.fixture
def bare(api_server: Cluster) -> Iterator[Cluster]:
    """Return the cluster without CRD and rights, which helm takes from nobody; afterwards it is so again."""

    def clear() -> None:
        for file in (CRD, RBAC, POLICY, USERS):
            api_server.kubectl("delete", "-f", str(file), "--ignore-not-found")

    clear()
    if NAMESPACE not in api_server.kubectl("get", "namespaces", "-o", "name"):
        api_server.kubectl("create", "namespace", NAMESPACE)
    yield api_server
    chart.helm("uninstall", RELEASE, f"--namespace={NAMESPACE}", kubeconfig=api_server.kubeconfig)
    clear()


def install(cluster: Cluster, root: Path) -> None:
    """Install a release's chart, or upgrade to it."""
    command = ["upgrade", "--install", RELEASE, str(root / "charts/guidedmodel"), f"--namespace={NAMESPACE}"]
    chart.helm(*command, "--set=image.repository=registry.test/guidedmodel", kubeconfig=cluster.kubeconfig)


def model(namespace: str, **spec: Any) -> Object:
    """Return a GuidedModel that says the same to both releases."""
    # The one before wrote its default of the sidecar's resources out; this one has it where nothing is said.
    said = {"resources": {"requests": {"cpu": "200m", "memory": "512Mi"}}}
    made = newest(namespace, sidecar=said, **spec)
    del made["spec"]["engine"]["accelerator"]
    return made


def pods(cluster: Cluster, namespace: str) -> set[str]:
    return {pod["metadata"]["uid"] for pod in items(cluster, namespace, "pods")}


def shows(cluster: Cluster, *args: str, text: str = "") -> bool:
    """Say whether kubectl succeeds with a text; for some seconds a new CRD answers 429."""
    try:
        return text in cluster.kubectl(*args)
    except KubectlError:
        return False


def knows_rollout(cluster: Cluster) -> bool:
    """Say whether the API server has the schema of this release, or else that of the one before."""
    return shows(cluster, "explain", "gm.spec.rollout", text="maxSurge")


def surge(cluster: Cluster, namespace: str) -> int | None:
    """Return what tells which release has acted last: the one before had a surge of 1. None: none has yet."""
    found = items(cluster, namespace, "deployments")
    return found[0]["spec"]["strategy"]["rollingUpdate"]["maxSurge"] if found else None


def test_upgrade_and_back_change_no_pod(bare: Cluster, previous: Path, tmp_path: Path) -> None:
    namespace = "upgrade"
    old = {"PYTHONPATH": f"{previous}/operator:{previous}/engine"}
    new = {"GUIDEDMODEL_PLUGIN_IMAGE": "registry.test/guidedmodel:2"}

    def settled(expected_surge: int) -> None:
        eventually(lambda: surge(bare, namespace) == expected_surge, what="the release acts")
        await_condition(bare, namespace, "Compatible", "True")
        await_condition(bare, namespace, "Ready", "True")

    with bare.namespace(namespace), Kubelet(bare.kubeconfig, namespace):
        install(bare, previous)
        eventually(
            lambda: shows(bare, "get", "guidedmodels", "--all-namespaces"), what="GuidedModels are served"
        )
        with running(bare, tmp_path, "before", **old):
            eventually(lambda: bare.get("crd", CRD_NAME), what="the CRD is there")
            bare.apply(model(namespace, replicas=2))
            settled(1)
            before = pods(bare, namespace)
            template = deployment(bare, namespace)["spec"]["template"]
            install(bare, chart.ROOT)
            eventually(lambda: knows_rollout(bare), what="the CRD is that of this release")
        with running(bare, tmp_path, "after", **new):
            settled(0)
            bare.apply(model(namespace, replicas=2, rollout={"maxSurge": 1, "maxUnavailable": 0}))
            settled(1)
        assert pods(bare, namespace) == before
        assert deployment(bare, namespace)["spec"]["template"] == template
        chart.helm("rollback", RELEASE, "1", f"--namespace={NAMESPACE}", kubeconfig=bare.kubeconfig)
        eventually(lambda: not knows_rollout(bare), what="the CRD is that of the release before")
        with running(bare, tmp_path, "back", **old):
            settled(1)
            assert pods(bare, namespace) == before
            assert deployment(bare, namespace)["spec"]["template"] == template
            changed = model(namespace, replicas=2)
            changed["spec"]["engine"]["env"] = [{"name": "APP_EXTRA", "value": "1"}]
            bare.apply(changed)
            eventually(lambda: "APP_EXTRA" in environment(bare, namespace), what="it still acts on changes")
            bare.kubectl("delete", "gm/m", "-n", namespace)
            eventually(lambda: not items(bare, namespace, "pods"), timeout_s=60, what="all pods are gone")


def defaults(schema: Mapping[str, Any], path: str = "") -> dict[str, Any]:
    """Return the default of each field, if any, objects aside: theirs follow from their parts."""
    found = {}
    for name, field in schema.get("properties", {}).items():
        if field.get("type") != "object":
            found[f"{path}.{name}"] = field.get("default")
        found |= defaults(field, f"{path}.{name}")
    return found


def test_default_never_changes_within_an_api_version(previous: Path) -> None:
    """A default that changes restarts the pods of all who never wrote the field, where there still is one."""
    then = yaml.safe_load((previous / "charts/guidedmodel/files/crd.yaml").read_text())
    before, now = (
        defaults(each["spec"]["versions"][0]["schema"]["openAPIV3Schema"])
        for each in (then, custom_resource_definition())
    )
    kept = {path: value for path, value in before.items() if value is not None and path in now}
    assert kept.items() <= now.items(), json.dumps(
        {path: (value, now[path]) for path, value in kept.items() if now[path] != value}
    )
