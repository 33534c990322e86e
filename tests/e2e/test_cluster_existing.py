"""`make cluster CLUSTER=existing`: a bare node of ours is somebody else's cluster, with images of its own."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from devtools import cluster_demo, deploy, golang, image, oci
from devtools.kubectl import Kubectl, KubectlError

from support.cluster import Node

pytestmark = [pytest.mark.node, pytest.mark.timeout(900)]

TIMEOUT_S = 600


@pytest.fixture
def environment(node: Node, tmp_path: Path) -> Iterator[dict[str, str]]:
    """What an administrator of the node gives the command; what it puts there goes again."""
    kubectl = Kubectl(node.kubeconfig)
    # Other modules' Jaeger, which runs beside the node: with two behind one name each gets a part of a trace.
    kubectl.run("delete", "namespace/observability", "--ignore-not-found")
    for archive in (image.operator(), image.engine(), oci.jaeger_image(), oci.collector_image()):
        node.devtools.import_image(archive)
    deploy.create_models(kubectl, deploy.models())
    sample, jaeger = tmp_path / "sample.yaml", tmp_path / "jaeger.yaml"
    model = deploy.sample()
    model["spec"]["telemetry"]["otlp"]["endpoint"] = "http://otel-collector.observability:4318"
    sample.write_text(json.dumps(model))
    jaeger.write_text(
        yaml.safe_dump_all(
            [
                *_with_image(cluster_demo.OBSERVABILITY, oci.JAEGER),
                *_with_image(cluster_demo.OBSERVABILITY.with_name("collector.yaml"), oci.COLLECTOR),
            ]
        )
    )
    yield os.environ | {
        "PYTHONPATH": str(golang.TOOLS),
        "KUBECONFIG": str(node.kubeconfig),
        "CLUSTER": "existing",
        "IMAGE": image.OPERATOR,
        "SAMPLE": str(sample),
        "JAEGER": str(jaeger),
    }
    for gone in ("guidedmodel/tiny", "namespace/observability", "pvc/models", "pv/models-default"):
        kubectl.run("delete", gone, "--ignore-not-found")


def _with_image(manifest: Path, image: str) -> list[dict[str, Any]]:
    """Return a manifest's objects, with an image that this node has."""
    objects = list(yaml.safe_load_all(manifest.read_text()))
    [deployment] = (one for one in objects if one["kind"] == "Deployment")
    deployment["spec"]["template"]["spec"]["containers"][0]["image"] = image
    return objects


def _what_they_say(kubectl: Kubectl) -> str:
    """Return what those on a trace's way say of themselves, for whoever looks for one that is lost."""
    asked = (
        ("get", "pods", "--all-namespaces", "-o=wide"),
        ("logs", "--namespace=observability", "deployment/otel-collector", "--tail=30"),
        ("logs", "--namespace=observability", "deployment/jaeger", "--tail=20"),
        ("logs", "--namespace=default", "-l=app.kubernetes.io/instance=tiny", "-c=sidecar", "--tail=30"),
    )
    said = []
    for arguments in asked:
        try:
            said.append(kubectl.run(*arguments))
        except KubectlError as error:
            said.append(str(error))
    return "\n".join(said)


def test_the_sample_answers_and_its_trace_reaches_a_jaeger_there_by_a_collector(
    environment: dict[str, str], node: Node
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "devtools.cluster_demo"],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + _what_they_say(Kubectl(node.kubeconfig))
    _, _, told = done.stdout.partition("the pod answered ")
    answer, _, trace = told.partition("\n")
    assert json.loads(answer).keys() == {"name", "age", "note"}
    assert "its trace in Jaeger" in trace
    assert "llm_request" in trace
    assert "helm uninstall guidedmodel" in trace
