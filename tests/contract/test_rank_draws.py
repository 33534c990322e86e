"""Speculation under a grammar changes no odds: a rank's masks in vLLM's own rejection sampler."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
SEED = "1"

pytestmark = pytest.mark.engine


def test_drawn_tokens_are_those_of_the_model_without_drafts() -> None:
    """Pearson's chi-square, at temperature 1: drafts without odds (a prompt's text, greedy) and with them."""
    paths = os.pathsep.join((str(TESTS / "support/v2cpu"), str(TESTS)))
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "support.drafts_on_device", SEED],
        env=os.environ | {"PYTHONPATH": paths, "VLLM_USE_V2_MODEL_RUNNER": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    ways = [json.loads(line) for line in done.stdout.splitlines()[-2:]]
    for off, off_at_another_temperature, forbidden, accepted in ways:
        assert off < 1, f"seed {SEED}"
        assert off_at_another_temperature > 1, f"seed {SEED}"  # so many draws would show it
        assert min(forbidden, accepted) > 100
