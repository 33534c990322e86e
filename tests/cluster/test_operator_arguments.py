"""What the API server leaves to the operator: options and variables of one vLLM version, listed or any.

By a real operator on a real API server; what the server refuses by itself is in test_crd.py.
"""

from pathlib import Path

import pytest

from support.cluster import Cluster
from support.operator_process import install, running
from support.resources import await_condition, items, model

pytestmark = pytest.mark.cluster

ARGS = ["--kv-transfer-config={}", "--enforce-eagre"]
ENV = [{"name": "NCCL_IB_DISABEL", "value": "1"}]
TOLD = (
    "spec.engine.args[0]: --kv-transfer-config is not listed for vLLM 0.32.0: it makes this pod",
    "remove it, or have whoever runs the operator set limits.arguments to Any",
    "spec.engine.args[1]: --enforce-eagre is no option of vLLM 0.32.0; did you mean --enforce-eager?",
    "spec.engine.env[0].name: NCCL_IB_DISABEL is not listed for vLLM 0.32.0; did you mean NCCL_IB_DISABLE?",
)


def test_the_condition_says_which_why_and_what_to_do(api_server: Cluster, tmp_path: Path) -> None:
    install(api_server)
    with api_server.namespace("arguments") as namespace:
        wanted = model(namespace)
        wanted["spec"]["engine"] |= {"args": ARGS, "env": ENV}
        with running(api_server, tmp_path, "listed"):
            api_server.apply(wanted)
            told = await_condition(api_server, namespace, "Compatible", "False", "Invalid")["message"]
            assert [each for each in TOLD if each not in told] == []
            await_condition(api_server, namespace, "Ready", "False", "Incompatible")
            assert items(api_server, namespace) == []
        with running(api_server, tmp_path, "any", GUIDEDMODEL_ARGUMENTS="Any"):
            await_condition(api_server, namespace, "Compatible", "True")
            [made] = items(api_server, namespace, "deployments")
            [engine] = made["spec"]["template"]["spec"]["containers"]
            assert engine["args"][-2:] == ARGS
