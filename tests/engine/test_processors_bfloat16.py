"""Processors of a bfloat16 model: each token is what plain numpy makes in float32 of the logits it gave."""

from pathlib import Path

import pytest

from support import matrix, processed_judge
from support.matrix_process import Runner

pytestmark = [pytest.mark.engine, pytest.mark.timeout(600)]

RUNNERS: tuple[Runner, ...] = ("V1", "V2") if matrix.is_full() else ("V1",)  # V2 takes minutes here


@pytest.mark.parametrize("runner", RUNNERS)
def test_each_token_is_the_references_choice(tmp_path: Path, runner: Runner) -> None:
    processed_judge.check(tmp_path, runner, {})
