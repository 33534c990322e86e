"""What the API server takes and the operator refuses: by its own rules, and by limits of its installation."""

from pathlib import Path
from typing import Any

import pytest

from support.cluster import Cluster
from support.manifests import changed
from support.operator_process import install, running
from support.resources import await_condition, conditions, items, model
from support.waiting import eventually

pytestmark = pytest.mark.cluster
LIMITS = {
    "GUIDEDMODEL_ALLOWED_IMAGES": "docker.io/vllm",
    "GUIDEDMODEL_ALLOWED_MODELS": "file:///models",
    "GUIDEDMODEL_REMOTE_CODE": "Refuse",
    "GUIDEDMODEL_ARGUMENTS_DENY": "--kv-*",
}
ARGS = ["--kv-transfer-config={}", "--of-vllm-9=1"]
PRELOAD = [{"name": "LD_PRELOAD", "value": "x"}]
HOST = [{"name": "a", "hostPath": {"path": "/"}}]
BAN = [{"name": "ban", "factory": "acme.processors:Ban"}]
# By the name of a model: what it asks for, and what its condition says of it.
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "version": ({"engine__image": "vllm/vllm-openai:v0.9.1"}, "spec.engine.image: vLLM 0.9.1"),
    "argument": ({"engine__args": ["--model=x"]}, "--model is set by the operator: set model.uri"),
    "variable": ({"engine__env": PRELOAD}, "LD_PRELOAD is not allowed: it makes the loader, Python or"),
    "volume": ({"pod": {"volumes": HOST}}, "spec.pod.volumes[0]: must have a name and exactly one of"),
    "image": ({"engine__image": "quay.test/a:1"}, "spec.engine.image: this operator allows only images from"),
    "model": ({"model__uri": "hf://o/n"}, "spec.model.uri: this operator allows only models from file:///"),
    "code": ({"model__trustRemoteCode": True}, "spec.model.trustRemoteCode: "),
    "denied": ({"engine__args": ARGS}, "ask whoever runs the operator to change limits.arguments"),
    "factory": ({"logitsProcessors": BAN}, "this operator allows only guided_engine.*"),
}


def test_the_condition_says_which_why_and_what_to_do(api_server: Cluster, tmp_path: Path) -> None:
    install(api_server)

    def is_told(namespace: str, name: str, why: str) -> bool:
        found = conditions(api_server, namespace, name)
        reasons = [found.get(kind, {}).get("reason") for kind in ("Compatible", "Ready")]
        return reasons == ["Invalid", "Incompatible"] and why in found["Compatible"]["message"]

    with api_server.namespace("arguments") as namespace:
        with running(api_server, tmp_path, "limited", **LIMITS):
            for name, (fields, _) in REFUSED.items():
                api_server.apply(changed(model(namespace, name), **fields))
            for name, (_, why) in REFUSED.items():
                eventually(lambda name=name, why=why: is_told(namespace, name, why), what=f"{name}: {why}")
            assert items(api_server, namespace) == []
            api_server.kubectl("delete", "gm", "--all", "-n", namespace)
        with running(api_server, tmp_path, "free"):
            api_server.apply(changed(model(namespace), engine__args=ARGS))
            await_condition(api_server, namespace, "Compatible", "True")
            [made] = items(api_server, namespace, "deployments")
            [engine] = made["spec"]["template"]["spec"]["containers"]
            assert engine["args"][-2:] == ARGS
