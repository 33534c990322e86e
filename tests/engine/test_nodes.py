"""One engine over two nodes, by vLLM's own multi-node executor, each node with a real sidecar.

Slow; the sidecars' part is in tests/contract/test_relay.py, too. MATRIX=full (make test-matrix) alone.
"""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from guided_contract.config import GuidedDecodingConfig, PodConfig
from support import matrix, openai
from support.engine import Engine, wait_until
from support.nodes import place, two_nodes
from support.pod import V2
from support.sidecar import Sidecar

pytestmark = [
    pytest.mark.engine,
    pytest.mark.timeout(900),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.skipif(not matrix.is_full(), reason="MATRIX=full runs it"),
]
Object = dict[str, Any]
SCHEMA = {
    "type": "object",
    "properties": {"age": {"type": "integer", "minimum": 0, "maximum": 99}},
    "required": ["age"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module", params=[(2, 1), (1, 2)], ids=["tp2", "pp2"])
def pods(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[PodConfig, PodConfig]]:
    tensor, stages = request.param
    pods = two_nodes(
        (str(tmp_path_factory.mktemp("a")), str(tmp_path_factory.mktemp("b"))),
        tensor_parallel=tensor,
        pipeline_parallel=stages,
        guided_decoding=GuidedDecodingConfig(compare_every=1),
    )
    with ExitStack() as stack:
        engines = []
        for node, pod in enumerate(pods):
            stack.callback(Sidecar.start(pod, place(node)).stop)
            stages_args = ("--pipeline-parallel-size", str(stages))
            engines.append(Engine.start(pod, stages_args, {**V2, **place(node)}))
            stack.callback(engines[-1].stop)
        for engine in engines:
            engine.wait_started()
        yield pods


def page(pod: PodConfig) -> Object:
    import httpx

    found: Object = httpx.get(f"http://127.0.0.1:{pod.ports.sidecar}/status").json()
    return found


def test_both_pods_get_ready_and_the_first_knows_every_rank(pods: tuple[PodConfig, PodConfig]) -> None:
    first, second = pods
    wait_until(lambda: page(first)["ready"], 120)
    wait_until(lambda: page(second)["ready"], 30)
    everywhere = [(rank, "Connected") for rank in range(first.sampling_ranks)]
    assert [(each["rank"], each["state"]) for each in page(first)["ranks"]] == everywhere
    there = [(rank, "Connected") for rank in second.sampling_of(1)]
    assert [(each["rank"], each["state"]) for each in page(second)["ranks"]] == there


@pytest.mark.parametrize("backend", ["xgrammar", "guidance"])
def test_guided_requests_are_masked_alike_on_both_nodes(
    pods: tuple[PodConfig, PodConfig], backend: str
) -> None:
    import httpx

    first, _ = pods
    url = f"http://127.0.0.1:{first.ports.engine}"
    how: Object = {"max_tokens": 24, "temperature": 1.0, "vllm_xargs": {"guided_backend": backend}}
    for seed in range(8):
        answer = openai.guided(url, "Age:", "json", SCHEMA, seed=seed, **how)
        assert answer.status_code == 200, answer.text
        assert 0 <= json.loads(openai.text(answer))["age"] <= 99
    told = page(first)
    assert not told["desync"]
    if first.tensor_parallel > 1:
        metrics = httpx.get(f"http://127.0.0.1:{first.ports.sidecar}/metrics").text
        [compared] = [
            line for line in metrics.splitlines() if line.startswith("guidedmodel_digests_compared")
        ]
        assert float(compared.split()[-1]) > 0
