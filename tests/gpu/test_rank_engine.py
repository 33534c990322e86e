"""Stock vLLM with Model Runner V2 on a GPU: CUDA graphs, async scheduling and drafts, as upstream.

The cells of tests/engine, where the engine captures graphs and the device really runs beside the host; a step
that waits for the device ends the engine. Needs an environment with vLLM's CUDA build instead of its CPU
build: extras engine and dev.
"""

from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from devtools import tinymodel

from support import apart, matrix, matrix_process
from support.matrix import Cell

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")

CELLS = [
    Cell("V2", 1, "none", is_async=True),
    Cell("V2", 1, "draft", is_async=True),
    Cell("V2", 1, "ngram_gpu", is_async=True),
    Cell("V2", 1, "eagle3", is_async=True),
    Cell("V2", 1, "eagle3-probabilistic", is_async=True),
    Cell("V2", 1, "eagle3-block", is_async=True),
    Cell("V2", 1, "eagle3-adaptive", is_async=True),
    Cell("V2", 1, "mtp", is_async=True, num_drafts=1),
]
# Graphs of whole steps, without torch.compile, which neither plugin nor masks meet.
GRAPHS = {
    "enforce_eager": False,
    "compilation_config": {"mode": 0, "cudagraph_mode": "FULL_DECODE_ONLY"},
    "kv_cache_memory_bytes": 1 << 28,  # engines that start together cannot measure what is free
    "gpu_memory_utilization": 0.1,
}


@pytest.fixture(scope="module")
def upstream(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    """Upstream's own answers on this device, sync and without drafts."""
    folder = tmp_path_factory.mktemp("upstream")
    model = str(tinymodel.models() / "tiny")
    job = matrix_process.Job(answer=str(folder / "answer.json"), model=model, arguments=GRAPHS, on_gpu=True)
    answers: dict[str, list[Any]] = matrix_process.start(job, "V2", folder)
    return answers


@pytest.fixture(scope="module")
def engines(tmp_path_factory: pytest.TempPathFactory) -> dict[Cell, Future[dict[str, Any]]]:
    """All cells' engines, at the same time: each takes a fraction of the device's memory."""

    def run(cell: Cell, folder: Path) -> dict[str, Any]:
        job = matrix.rank_job(cell, folder)
        job = msgspec.structs.replace(job, arguments={**job.arguments, **GRAPHS}, on_gpu=True)
        found: dict[str, Any] = matrix_process.start(job, cell.runner, folder)
        assert found["facts"] == {"async": cell.is_async, "runner": "V2"}
        return found

    with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor() as pool:
        patch.setenv("VLLM_GPU_SYNC_CHECK", "error")
        return {cell: pool.submit(run, cell, tmp_path_factory.mktemp("cell")) for cell in CELLS}


@pytest.fixture(params=CELLS, ids=lambda cell: cell.name)
def answers(request: pytest.FixtureRequest, engines: dict[Cell, Future[dict[str, Any]]]) -> dict[str, Any]:
    return engines[request.param].result()


@pytest.mark.parametrize("backend", matrix.BACKENDS)
def test_token_for_token_as_upstream(
    answers: dict[str, Any], upstream: dict[str, list[Any]], backend: str
) -> None:
    # Upstream does not speculate, and so was asked for more.
    assert answers[backend] == upstream[backend][: len(answers[backend])]


def test_a_fault_ends_its_own_sequence_with_its_code(answers: dict[str, Any]) -> None:
    faults = answers["faults"]
    assert faults["dead end"][1:] == ["error", "sequence_dead_end"]
    assert faults["processor: NaN"] == [[], "error", "sequence_processor_failed"]
    assert faults["processor: nothing"] == [[], "error", "sequence_processor_no_token"]
    without = faults["without faults"]
    assert {name: faults[name] for name in without} == without


@pytest.mark.parametrize("drafts", [one for one in CELLS if one.reads_hidden_states], ids=lambda c: c.name)
def test_what_reads_the_models_hidden_states_is_given_the_right_ones(
    engines: dict[Cell, Future[dict[str, Any]]], drafts: Cell
) -> None:
    assert matrix.accepted_share(engines[drafts].result()) > matrix.GUESSED


def test_edits_and_faults_are_as_plain_numpy_has_them() -> None:
    """By the kernel as Triton compiles it here."""
    seeds = tuple(map(str, range(6)))
    assert apart.edits(seeds) == [[] for _ in seeds], f"of seeds {seeds}"
