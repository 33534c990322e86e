"""Run a module of support whose environment is settled when Python starts."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

INTERPRETER = Path(__file__).with_name("v2cpu")  # Triton's, for Model Runner V2 on a CPU
ON_V2 = {"VLLM_USE_V2_MODEL_RUNNER": "1"}


def ran(module: str, *words: str, given: str = "", **environment: str) -> list[str]:
    """Return the lines that it prints."""
    paths = [str(INTERPRETER)] if ON_V2.items() <= environment.items() else []
    done = subprocess.run(
        [sys.executable, "-m", f"support.{module}", *words],
        env=os.environ | environment | {"PYTHONPATH": os.pathsep.join([*paths, *sys.path])},
        input=given,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.splitlines()


def edits(seeds: Sequence[str], **environment: str) -> list[Any]:
    """Return for each seed what differs from plain numpy in edits on a device."""
    return [json.loads(line) for line in ran("edits_on_device", *seeds, **environment)[-len(seeds) :]]
