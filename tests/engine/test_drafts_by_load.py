"""numTokens Auto in real engines: what is chosen follows from how good drafts are, and changes no token.

An EAGLE-3 head of random weights, and a draft model that is the model itself, whose drafts are all right; on
one played clock, with requests in flight all along.
"""

from itertools import groupby
from pathlib import Path
from typing import Any

import msgspec
import pytest

from guided_contract.records import DraftTokens
from guided_operator.builders.arguments import schedule_by_load
from support import load_cell, matrix, matrix_process, matrix_requests, matrix_upstream
from support.matrix import DRAFTS, Cell
from support.matrix_process import Job

pytestmark = [
    pytest.mark.engine,
    pytest.mark.timeout(1500),
    pytest.mark.skipif(not matrix.is_full(), reason="minutes: make test-matrix"),
]

BAD = Cell("V2", 1, "eagle3-random", is_async=True)
GOOD = Cell("V2", 1, "draft", is_async=True)
LARGEST = 32  # sequences


def job(cell: Cell, folder: Path) -> Job:
    """Return the job of an engine whose pod asks for numTokens Auto, with room for all requests."""
    made = matrix.rank_job(cell, folder)
    assert made.pod is not None
    numbers = {"num_speculative_tokens_per_batch_size": schedule_by_load(DRAFTS, LARGEST)}
    own = {"model": made.model} if cell == GOOD else {}
    return msgspec.structs.replace(
        made,
        pod=msgspec.structs.replace(made.pod, drafts_by_load=True),
        speculation=made.speculation | numbers | own,
        arguments=made.arguments | {"num_gpu_blocks_override": 256},
    )


class Engines:
    """Answers of each engine, which is started once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._answers: dict[str, Any] = {}

    def answers(self, cell: Cell) -> dict[str, Any]:
        """Return what an engine by load told."""
        return self._of(cell.name, lambda folder: job(cell, folder))

    def unspeculated(self) -> list[Any]:
        """Return what upstream gives for the steady requests, without speculation."""
        tiny = str(matrix.model_of("none"))
        answers = self._of("upstream", lambda folder: Job(answer=str(folder / "answer.json"), model=tiny))
        found: list[Any] = answers["steady"]
        return found

    def _of(self, name: str, make: Any) -> dict[str, Any]:
        if name not in self._answers:
            folder = self._folder / name
            folder.mkdir()
            made = make(folder)
            self._answers[name] = matrix_process.start(made, "V2", folder, "support.load_cell")
        answers: dict[str, Any] = self._answers[name]
        return answers


@pytest.fixture(scope="module")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Engines:
    return Engines(tmp_path_factory.mktemp("load"))


@pytest.fixture(params=[BAD, GOOD], ids=["random", "right"])
def cell(request: pytest.FixtureRequest) -> Cell:
    found: Cell = request.param
    return found


def told(engines: Engines, cell: Cell) -> list[DraftTokens]:
    return msgspec.convert(engines.answers(cell)["told"], list[DraftTokens])


def test_drafts_in_vain_end_and_good_ones_stay(engines: Engines) -> None:
    """Both begin with the most; beside what is chosen there are trials in some steps, to the end."""
    bad, good = (engines.answers(one)["draft tokens"] for one in (BAD, GOOD))
    assert bad[0] == good[0] == DRAFTS
    assert {*bad} | {*good} <= {0, 1, DRAFTS}
    assert good.count(DRAFTS) > 0.8 * len(good)
    assert [told(engines, one)[-1].chosen for one in (BAD, GOOD)] == [0, DRAFTS]


def test_no_token_differs_while_the_number_changes(engines: Engines, cell: Cell) -> None:
    answers = engines.answers(cell)
    assert answers["facts"] == {"async": True, "runner": "V2"}
    assert answers["steady"] == engines.unspeculated()
    corpus = matrix_requests.corpus()
    upstream = matrix_upstream.reference("V2", 1)["xgrammar"]
    assert answers["guided"] == [upstream[corpus.index(request)] for request in load_cell.guided()]
    if cell == BAD:  # or there was nothing to see
        runs = [number for number, _ in groupby(answers["draft tokens"])]
        assert len(runs) >= 3
