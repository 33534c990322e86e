"""Stock vLLM with Model Runner V2 on a GPU: CUDA graphs, async scheduling and a draft model, as upstream.

The cells of tests/engine, where the engine may capture graphs and the device really runs beside the host.
Needs an environment with vLLM's CUDA build instead of its CPU build: extras engine and dev.
"""

from typing import Any

import msgspec
import pytest
import torch
from devtools import tinymodel

from support import matrix, matrix_process
from support.matrix import Cell

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")

CELLS = [
    Cell("V2", 1, "draft", is_async=True),
    Cell("V2", 1, "none", is_async=True),
]
GRAPHS = {"enforce_eager": False}


@pytest.fixture(scope="module")
def upstream(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    """Upstream's own answers on this device, sync and without drafts."""
    folder = tmp_path_factory.mktemp("upstream")
    model = str(tinymodel.models() / "tiny")
    job = matrix_process.Job(answer=str(folder / "answer.json"), model=model, arguments=GRAPHS, on_gpu=True)
    answers: dict[str, list[Any]] = matrix_process.start(job, "V2", folder)
    return answers


@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: cell.name)
def test_token_for_token_as_upstream(
    cell: Cell, upstream: dict[str, list[Any]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("cell")
    job = matrix.rank_job(cell, folder)
    job = msgspec.structs.replace(job, arguments={**job.arguments, **GRAPHS}, on_gpu=True)
    answers = matrix_process.start(job, cell.runner, folder)
    assert answers["facts"] == {"async": cell.is_async, "runner": "V2"}
    for backend in matrix.BACKENDS:
        # Upstream does not speculate, and so was asked for more.
        assert answers[backend] == upstream[backend][: len(answers[backend])]
