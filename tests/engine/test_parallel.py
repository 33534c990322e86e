"""Whole engines whose ranks are spread otherwise than by tensor parallelism, beside a real sidecar.

Slow, and the same code as elsewhere but for who is waited for: MATRIX=full (make test-matrix) alone.
"""

import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from guided_contract.config import GuidedDecodingConfig, LogitsProcessorConfig, PodConfig
from guided_contract.heartbeat import Heartbeats, core_slot
from support import matrix, openai
from support.engine import Engine, pod_config, wait_until
from support.pod import V2
from support.sidecar import Sidecar

pytestmark = [
    pytest.mark.engine,
    pytest.mark.timeout(900),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.skipif(not matrix.is_full(), reason="MATRIX=full runs it"),
]

SCHEMA = {
    "type": "object",
    "properties": {"age": {"type": "integer", "minimum": 0, "maximum": 99}},
    "required": ["age"],
    "additionalProperties": False,
}


FAULTS = [
    LogitsProcessorConfig(
        name="fails", factory="support.failing:FailsLater", params={"after": 3}, apply_by_default=False
    ),
    LogitsProcessorConfig(name="nan", factory="support.odd_processors:GivesNan", apply_by_default=False),
]


@pytest.fixture(
    scope="module",
    params=[(1, 1, 2, ()), (1, 2, 1, ()), (2, 1, 2, ()), (2, 1, 1, ("--enable-batch-sharded-sampling",))],
    ids=["dp2", "pp2", "tp2dp2", "tp2sharded"],
)
def pod(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PodConfig]:
    tensor, stages, engines, more = request.param
    pod = pod_config(
        tmp_path_factory.mktemp("p"),
        tensor_parallel=tensor,
        pipeline_parallel=stages,
        data_parallel=engines,
        guided_decoding=GuidedDecodingConfig(compare_every=1),
        logits_processors=FAULTS,
    )
    args = ("--pipeline-parallel-size", str(stages), "--data-parallel-size", str(engines), *more)
    sidecar = Sidecar.start(pod)
    environment = {**V2, "PYTHONPATH": f"{Path(__file__).parents[1]}:{V2['PYTHONPATH']}"}
    try:
        engine = Engine.start(pod, args, environment)
        try:
            engine.wait_started()
            yield pod
        finally:
            engine.stop()
    finally:
        sidecar.stop()


def test_every_sampling_rank_is_waited_for_and_serves(pod: PodConfig) -> None:
    import httpx

    url = f"http://127.0.0.1:{pod.ports.engine}"
    sidecar = f"http://127.0.0.1:{pod.ports.sidecar}"

    def ranks() -> list[tuple[int, str]]:
        return [(one["rank"], one["state"]) for one in httpx.get(f"{sidecar}/status").json()["ranks"]]

    def agreement(what: str) -> float:
        lines = httpx.get(f"{sidecar}/metrics").text.splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.startswith(f"guidedmodel_{what}_total"))

    wait_until(lambda: ranks() == [(number, "Connected") for number in range(pod.sampling_ranks)], 60)
    # Enough at once that each engine core gets some; a rank without the grammar would end its requests.
    with ThreadPoolExecutor(12) as pool:
        schemas = list(pool.map(lambda n: openai.guided(url, f"Give {n}", "json", SCHEMA), range(12)))
        patterns = list(
            pool.map(lambda n: openai.guided(url, f"Write {n}", "regex", "[a-c]{3,9}"), range(12))
        )
    assert all(isinstance(json.loads(openai.text(answer))["age"], int) for answer in schemas)
    assert all(re.fullmatch("[a-c]{3,9}", openai.text(answer)) for answer in patterns)
    # Ranks that sample the same sequences agree about each token; those of another group are never asked.
    tokens = sum(answer.json()["usage"]["completion_tokens"] for answer in (*schemas, *patterns))
    wait_until(lambda: agreement("digests_compared") >= tokens * (pod.tensor_parallel > 1))
    assert (agreement("rank_desyncs"), agreement("digests_lost")) == (0, 0)
    assert pod.tensor_parallel > 1 or not agreement("digests_compared")
    beats = Heartbeats(pod.heartbeats_file, writable=False)
    cores = [beats.read(core_slot(engine, pod.workers)) for engine in range(pod.data_parallel)]
    assert len({core.pid for core in cores} - {0}) == pod.data_parallel
    assert all(core.steps > 0 for core in cores)
    workers = [
        beats.read(core_slot(engine, pod.workers) + 1 + rank)
        for engine in range(pod.data_parallel)
        for rank in range(pod.workers)
    ]
    assert len({worker.pid for worker in workers} - {0}) == len(workers)
    beats.close()


@pytest.mark.parametrize(
    "sampling", [{"temperature": 0}, {"temperature": 1, "seed": 7}], ids=["greedy", "seeded"]
)
def test_a_processors_fault_ends_its_sequence_alone_on_all_ranks(
    pod: PodConfig, sampling: dict[str, float]
) -> None:
    """TensorRT-LLM PR 18896: one request ended 16 ranks. Sharded, one rank alone sees the fault."""
    import httpx

    url = f"http://127.0.0.1:{pod.ports.engine}"
    letters = {"structured_outputs": {"regex": "[a-z ]+"}, "min_tokens": 40, "max_tokens": 40}

    def running() -> float:
        lines = httpx.get(f"{url}/metrics").text.splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.startswith("vllm:num_requests_running"))

    def healthy(number: int) -> httpx.Response:
        constraint = {} if number % 2 else {"structured_outputs": None}
        return openai.completion(url, f"Neighbour {number}", **{**letters, **constraint, **sampling})

    def faulty(number: int) -> httpx.Response:
        constraint = {} if number % 3 else {"structured_outputs": None}
        arguments = {"vllm_xargs": {"logits_processors": [FAULTS[number % 2].name]}}
        n = 1 + number % 2 if sampling["temperature"] else 1
        return openai.completion(
            url, f"Fault {number}", n=n, **{**letters, **constraint, **sampling, **arguments}
        )

    with ThreadPoolExecutor(16) as pool:
        alone = [openai.text(answer) for answer in pool.map(healthy, range(4))]
        faults = pool.map(faulty, range(8))
        beside = [openai.text(answer) for answer in pool.map(healthy, range(4))]
        assert {openai.error_code(answer) for answer in faults} == {(422, "sequence_processor_failed")}
    assert beside == alone
    wait_until(lambda: running() == 0)
