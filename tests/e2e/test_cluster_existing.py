"""A bare node of ours is somebody else's cluster: README's lines, and `make cluster CLUSTER=existing` after.

In place of the internet: a registry for our image, and under their own names images made here of vLLM, Jaeger
and the collector. In place of a storage provisioner: one empty volume. The namespace
enforces the Pod Security Standard *restricted*.
"""

import contextlib
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from devtools import chart, cluster_demo, golang, image, oci
from devtools.kubectl import Kubectl, KubectlError
from devtools.process import free_ports
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from support import jaeger, readme
from support.cluster import Node
from support.registry import environment, registry
from support.waiting import eventually

pytestmark = [pytest.mark.node, pytest.mark.timeout(900)]

TIMEOUT_S = 600
ENFORCE = "pod-security.kubernetes.io/enforce"
OBSERVABILITY = cluster_demo.OBSERVABILITY.parent
INSTALL, SERVE, ASK, _ON_A_GPU, PROGRAMS = readme.blocks("On a cluster")
VERSION = yaml.safe_load((chart.CHART / "Chart.yaml").read_text())["appVersion"]


class User:
    """Who follows the README on this machine."""

    def __init__(self, node: Node, env: dict[str, str], address: str) -> None:
        self.kubectl = Kubectl(node.kubeconfig)
        self.image = f"{address}/team/guidedmodel:{VERSION}"
        self._env = env
        self._address = address

    def runs(self, lines: str) -> str:
        """Run lines as they stand, but for the registry's name and local ports; return what they print."""
        lines = lines.replace("registry.example", self._address)
        for port in re.findall(r"port-forward .* (\d+) &", lines):
            [free] = free_ports(1)
            lines = lines.replace(f" {port} &", f" {free}:{port} &").replace(f"host:{port}", f"host:{free}")
        # What goes on in the background ends with the shell.
        script = f"trap 'kill $(jobs -p) 2>/dev/null || true' EXIT\nset -euo pipefail\n{lines}"
        return self.finishes("/bin/bash", "-c", script)

    def finishes(self, *command: str, **env: str) -> str:
        """Run a command to its good end; return what it prints."""
        done = subprocess.run(
            command,
            cwd=golang.TOOLS.parent,
            env=self._env | env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        kinds = ("pods,jobs,pvc,guidedmodels,events", "--all-namespaces", "-o=wide")
        assert done.returncode == 0, f"{done.stdout}\n{self.kubectl.run('get', *kinds)}"
        return done.stdout


@pytest.fixture(scope="module")
def user(node: Node, tmp_path_factory: pytest.TempPathFactory) -> Iterator[User]:
    """Who follows the README on the node; what they put there goes again."""
    kubectl = Kubectl(node.kubeconfig)
    # Other modules' Jaeger, which runs beside the node: with two behind one name each gets a part of a trace.
    kubectl.run("delete", "namespace/observability", "--ignore-not-found")
    node.devtools.import_image(image.engine())
    for archive, name, manifest in (
        (oci.jaeger_image(), oci.JAEGER, "jaeger"),
        (oci.collector_image(), oci.COLLECTOR, "collector"),
    ):
        node.devtools.import_image(archive)
        node.devtools.name_image(name, f"docker.io/{_image(OBSERVABILITY / f'{manifest}.yaml')}")
    kubectl.run("label", "namespace/default", f"{ENFORCE}=restricted")
    volume = tmp_path_factory.mktemp("volume")
    volume.chmod(0o777)
    kubectl.apply(_volume(volume))
    home = tmp_path_factory.mktemp("home")
    # What PROGRAMS would install is in the environment that `make setup` made.
    (home / ".guidedmodel").symlink_to(golang.TOOLS.parent / ".venv")
    with registry(node, tmp_path_factory.mktemp("registry")) as found:
        yield User(node, environment(node, found) | {"HOME": str(home)}, found.address)
    kubectl.run("label", "namespace/default", f"{ENFORCE}-")
    gone = "job/tiny-model configmap/tiny-model namespace/observability pvc/models pv/first-hour"
    with contextlib.suppress(KubectlError):  # where the chart could not be installed it has no such kind
        kubectl.run("delete", "guidedmodel/tiny", "--ignore-not-found")
    for one in gone.split():
        kubectl.run("delete", one, "--ignore-not-found")


def _image(manifest: Path) -> str:
    """Return the image of a manifest's Deployment."""
    [deployment] = (one for one in yaml.safe_load_all(manifest.read_text()) if one["kind"] == "Deployment")
    name: str = deployment["spec"]["template"]["spec"]["containers"][0]["image"]
    return name


def _volume(folder: Path) -> dict[str, Any]:
    """Return what a storage provisioner would make for the claim of the sample."""
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": "first-hour"},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Retain",
            "hostPath": {"path": str(folder), "type": "Directory"},
            "claimRef": {"name": "models", "namespace": "default"},
        },
    }


def test_our_image_is_pushed_and_the_operator_runs_from_there(user: User) -> None:
    user.runs(INSTALL)
    user.kubectl.run(
        *("rollout", "status", "deployment/guidedmodel-operator"),
        *("--namespace=guidedmodel-system", "--timeout=110s"),
    )
    pods = user.kubectl.get("pods", "--namespace=guidedmodel-system")["items"]
    assert {one["image"] for pod in pods for one in pod["spec"]["containers"]} == {user.image}


def test_the_sample_fills_its_claim_and_becomes_ready(user: User) -> None:
    user.runs(SERVE)
    [pod] = user.kubectl.get("pods", "--selector=guidedmodel.io/name=tiny")["items"]
    started = [*pod["status"]["initContainerStatuses"], *pod["status"]["containerStatuses"]]
    assert {one["restartCount"] for one in started} == {0}


def test_it_answers_in_json_and_its_trace_is_in_jaeger(user: User) -> None:
    said = user.runs(ASK)
    answer, _ = json.JSONDecoder().raw_decode(said[said.index('{"id"') :])
    assert json.loads(answer["choices"][0]["text"])["name"] == "Alice"
    assert '{"data":' in said
    with user.kubectl.forwarded("service/jaeger", 16686, "observability") as url:
        # Each process exports its own spans, when it comes to it.
        eventually(
            lambda: any(trace.named("llm_request") for trace in jaeger.traces(url, "tiny", 0)),
            60,
            "vLLM's span of the request is in Jaeger",
        )


def test_our_programs_tell_that_it_is_ready(user: User) -> None:
    """The first line is not run: it installs what `make setup` has installed."""
    install, *lines = PROGRAMS.splitlines()
    assert install.endswith("pip install '.[cli]'")
    assert "GuidedModel default/tiny: ready" in user.runs("\n".join(lines))


def test_make_cluster_shows_what_is_there(user: User) -> None:
    said = user.finishes(
        *(sys.executable, "-m", "devtools.cluster_demo"),
        PYTHONPATH=str(golang.TOOLS),
        CLUSTER="existing",
        IMAGE=user.image,
    )
    _, _, told = said.partition("the pod answered ")
    answer, _, trace = told.partition("\n")
    assert json.loads(answer).keys() == {"name", "age", "note"}
    assert "its trace in Jaeger" in trace
    assert "llm_request" in trace
    assert "helm uninstall guidedmodel" in trace


def test_the_collector_sends_on_to_that_jaeger(user: User) -> None:
    user.kubectl.run("apply", f"--filename={OBSERVABILITY / 'collector.yaml'}")
    rollout = ("rollout", "status", "deployment/otel-collector", "--namespace=observability")
    user.kubectl.run(*rollout, "--timeout=110s")
    with user.kubectl.forwarded("service/otel-collector", 4318, "observability") as url:
        provider = TracerProvider(resource=Resource({"service.name": "by-the-collector"}))
        provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(f"{url}/v1/traces")))
        provider.get_tracer("tests").start_span("one").end()
        provider.shutdown()
    with user.kubectl.forwarded("service/jaeger", 16686, "observability") as url:
        eventually(lambda: jaeger.traces(url, "by-the-collector", 0), 60)
