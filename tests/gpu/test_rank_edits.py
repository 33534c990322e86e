"""The kernel that applies logits processors' edits, as Triton compiles it for a GPU, beside plain numpy."""

import pytest
import torch

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


@pytest.mark.parametrize("seed", range(5))
def test_rows_and_faults_are_as_plain_numpy_has_them(seed: int) -> None:
    from support import edits_on_device

    assert edits_on_device.differences(seed) == []
