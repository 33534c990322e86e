"""The kernel that applies logits processors' edits, as Triton compiles it for a GPU, beside plain numpy."""

import pytest
import torch

from support import edits_judged

SEEDS = tuple(map(str, range(6)))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_rows_and_faults_are_as_plain_numpy_has_them() -> None:
    assert edits_judged.differences(SEEDS) == [[] for _ in SEEDS], f"of seeds {SEEDS}"
