"""Run a module of support whose environment is settled when Python starts."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

TESTS = Path(__file__).resolve().parents[1]


def ran(module: str, *words: str, paths: Sequence[Path] = (), **environment: str) -> list[str]:
    """Return the lines that it prints; `paths` come first on PYTHONPATH."""
    known = filter(None, (*map(str, paths), str(TESTS), os.environ.get("PYTHONPATH")))
    done = subprocess.run(
        [sys.executable, "-m", f"support.{module}", *words],
        env=os.environ | environment | {"PYTHONPATH": os.pathsep.join(known)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.splitlines()


def differences(seeds: Sequence[str], *paths: Path, **environment: str) -> list[Any]:
    """Return for each seed what differs from plain numpy."""
    lines = ran("edits_on_device", *seeds, paths=paths, **environment)
    return [json.loads(line) for line in lines[-len(seeds) :]]
