"""The kernel that applies logits processors' edits, as Triton compiles it for a GPU, beside plain numpy."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

TESTS = Path(__file__).resolve().parents[1]
SEEDS = tuple(map(str, range(6)))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_rows_and_faults_are_as_plain_numpy_has_them() -> None:
    paths = os.pathsep.join(filter(None, (str(TESTS), os.environ.get("PYTHONPATH"))))
    done = subprocess.run(
        [sys.executable, "-m", "support.edits_on_device", *SEEDS],
        env=os.environ | {"PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = [json.loads(line) for line in done.stdout.splitlines()[-len(SEEDS) :]]
    assert found == [[] for _ in SEEDS], f"of seeds {SEEDS}"
