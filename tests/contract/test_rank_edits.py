"""A step's edits in Model Runner V2 beside plain numpy, by Triton's interpreter; and for GPUs."""

from pathlib import Path

import pytest

from support import apart

pytestmark = pytest.mark.engine

SEEDS = ("0", "1")  # a row is one block, and four


def test_rows_and_faults_are_as_plain_numpy_has_them() -> None:
    assert apart.edits(SEEDS, **apart.ON_V2) == [[] for _ in SEEDS], f"of seeds {SEEDS}"


def test_the_kernel_compiles_for_gpus(tmp_path: Path) -> None:
    lines = apart.ran("kernel_for_gpus", TRITON_CACHE_DIR=str(tmp_path))
    assert [line.split(":")[0] for line in lines] == ["sm_80", "sm_90", "sm_100"]
