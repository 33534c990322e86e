"""What the API server leaves to the operator: arguments and variables, reserved, denied, and vLLM's own.

By a real operator on a real API server.
"""

from pathlib import Path

import pytest

from support.cluster import Cluster
from support.operator_process import install, running
from support.resources import await_condition, conditions, items, model
from support.waiting import eventually

pytestmark = pytest.mark.cluster

ARGS = ["--kv-transfer-config={}", "--of-vllm-9=1"]
ENV = [{"name": "NCCL_DEBUG", "value": "INFO"}]
RESERVED = (
    "spec.engine.args[0]: --model is set by the operator: set model.uri",
    "spec.engine.env[0].name: LD_PRELOAD is not allowed: it has the loader, Python or a compiler run other",
)
DENIED = (
    "spec.engine.args[0]: --kv-transfer-config is not allowed by this operator, which allows all but --kv-*",
    "have whoever runs the operator change limits.arguments",
)


def test_the_condition_says_which_why_and_what_to_do(api_server: Cluster, tmp_path: Path) -> None:
    install(api_server)
    with api_server.namespace("arguments") as namespace:
        wanted = model(namespace)
        wanted["spec"]["engine"] |= {"args": ["--model=x"], "env": [{"name": "LD_PRELOAD", "value": "x"}]}

        def await_told(*parts: str) -> None:
            api_server.apply(wanted)
            eventually(
                lambda: all(
                    part in conditions(api_server, namespace)["Compatible"]["message"] for part in parts
                ),
                what=str(parts),
            )
            await_condition(api_server, namespace, "Compatible", "False", "Invalid")
            await_condition(api_server, namespace, "Ready", "False", "Incompatible")
            assert items(api_server, namespace) == []

        with running(api_server, tmp_path, "denied", GUIDEDMODEL_ARGUMENTS_DENY="--kv-*"):
            api_server.apply(wanted)
            await_condition(api_server, namespace, "Compatible", "False", "Invalid")
            await_told(*RESERVED)
            wanted["spec"]["engine"] |= {"args": ARGS, "env": ENV}
            await_told(*DENIED)
        with running(api_server, tmp_path, "free"):
            await_condition(api_server, namespace, "Compatible", "True")
            [made] = items(api_server, namespace, "deployments")
            [engine] = made["spec"]["template"]["spec"]["containers"]
            assert engine["args"][-2:] == ARGS
