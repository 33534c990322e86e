"""Whole engines whose ranks are spread otherwise than by tensor parallelism, each node with a real sidecar.

Slow, and the same code as elsewhere but for who is waited for: MATRIX=full (make test-matrix) alone. The
sidecars' part of several nodes is in tests/contract/test_relay.py, too; what a fault ends, in test_matrix.py.
"""

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import httpx
import pytest

from guided_contract.config import GuidedDecodingConfig, PodConfig
from support import matrix, openai
from support.engine import Engine, pod_config, wait_until
from support.nodes import place, two_nodes
from support.pod import V2
from support.sidecar import Sidecar

pytestmark = [
    pytest.mark.engine,
    pytest.mark.timeout(900),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.skipif(not matrix.is_full(), reason="MATRIX=full runs it"),
]

SHARDED = ("--enable-batch-sharded-sampling",)
# Tensor parallelism, stages, engines, nodes, and more words.
SPREAD = {
    "dp2": (1, 1, 2, 1, ()),
    "pp2": (1, 2, 1, 1, ()),
    "tp2dp2": (2, 1, 2, 1, ()),
    "tp2sharded": (2, 1, 1, 1, SHARDED),
    "tp2 on two nodes": (2, 1, 1, 2, ()),
    "pp2 on two nodes": (1, 2, 1, 2, ()),
}


@pytest.fixture(scope="module", params=SPREAD)
def pods(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[PodConfig]]:
    tensor, stages, engines, nodes, more = SPREAD[request.param]
    fields: dict[str, Any] = {
        "tensor_parallel": tensor,
        "pipeline_parallel": stages,
        "data_parallel": engines,
        "guided_decoding": GuidedDecodingConfig(compare_every=1),
    }
    folders = [tmp_path_factory.mktemp("p") for _ in range(nodes)]
    if nodes > 1:
        pods = list(two_nodes((str(folders[0]), str(folders[1])), **fields))
    else:
        pods = [pod_config(folders[0], **fields)]
    args = ("--pipeline-parallel-size", str(stages), "--data-parallel-size", str(engines), *more)
    with ExitStack() as stack:
        started = []
        for node, pod in enumerate(pods):
            where = place(node) if nodes > 1 else {}
            stack.callback(Sidecar.start(pod, where).stop)
            started.append(Engine.start(pod, args, {**V2, **where}))
            stack.callback(started[-1].stop)
        for engine in started:
            engine.wait_started()
        yield pods


def test_every_sampling_rank_is_waited_for_and_serves(pods: list[PodConfig]) -> None:
    pod = pods[0]
    url = f"http://127.0.0.1:{pod.ports.engine}"

    def ranks(of: PodConfig) -> list[tuple[int, str]]:
        page = httpx.get(f"http://127.0.0.1:{of.ports.sidecar}/status").json()
        return [(one["rank"], one["state"]) for one in page["ranks"]]

    def agreement(what: str) -> float:
        lines = httpx.get(f"http://127.0.0.1:{pod.ports.sidecar}/metrics").text.splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.startswith(f"guidedmodel_{what}_total"))

    # The first node knows every rank, another its own.
    for node, one in enumerate(pods):
        wanted = range(one.sampling_ranks) if node == 0 else one.sampling_of(node)
        wait_until(lambda one=one, wanted=wanted: ranks(one) == [(rank, "Connected") for rank in wanted], 120)
    # Enough at once that each engine core gets some; a rank without the grammar would end its requests.
    asked = [("xgrammar", "[a-c]{3,9}"), ("guidance", "[d-f]{3,9}")] * 12
    with ThreadPoolExecutor(12) as pool:
        answers = list(
            pool.map(
                lambda one: openai.guided(
                    url, "Write", "regex", one[1], vllm_xargs={"guided_backend": one[0]}, temperature=1.0
                ),
                asked,
            )
        )
    for (_, regex), answer in zip(asked, answers, strict=True):
        assert re.fullmatch(regex, openai.text(answer))
    # Ranks that sample the same sequences agree about each token; those of another group are never asked.
    tokens = sum(answer.json()["usage"]["completion_tokens"] for answer in answers)
    wait_until(lambda: agreement("digests_compared") >= tokens * (pod.tensor_parallel > 1))
    assert (agreement("rank_desyncs"), agreement("digests_lost")) == (0, 0)
    assert pod.tensor_parallel > 1 or not agreement("digests_compared")
