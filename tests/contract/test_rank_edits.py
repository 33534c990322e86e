"""A step's edits in Model Runner V2 beside plain numpy, by Triton's interpreter; and for GPUs."""

from pathlib import Path

import pytest

from support import edits_judged

pytestmark = pytest.mark.engine


SEEDS = ("0", "1")  # a row is one block, and four


def test_rows_and_faults_are_as_plain_numpy_has_them() -> None:
    interpreter = edits_judged.TESTS / "support/v2cpu"
    found = edits_judged.differences(SEEDS, interpreter, VLLM_USE_V2_MODEL_RUNNER="1")
    assert found == [[] for _ in SEEDS], f"of seeds {SEEDS}"


def test_the_kernel_compiles_for_gpus(tmp_path: Path) -> None:
    lines = edits_judged.ran("kernel_for_gpus", TRITON_CACHE_DIR=str(tmp_path))
    assert [line.split(":")[0] for line in lines] == ["sm_80", "sm_90", "sm_100"]
