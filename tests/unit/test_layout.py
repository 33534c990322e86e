"""A wrong file here breaks Python itself, or tells strangers of our machines."""

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("folder", ["operator", "engine", "sidecar", "tests", "tests/unit", "tools", "."])
def test_folder_is_no_package(folder: str) -> None:
    """operator/__init__.py would shadow the standard library's operator and kill Python from the root."""
    assert not (ROOT / folder / "__init__.py").exists()


def test_nothing_of_a_machine_or_registry_is_committed() -> None:
    """Lock files carry hashes, never addresses."""
    pattern = r"pythonhosted|https?://[a-z.]*pypi|proxy\.golang|/work/(main|shared)|/tmp/w/"
    found = subprocess.run(
        ["git", "grep", "-nIE", pattern], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert not [line for line in found.stdout.splitlines() if "tests/unit/test_layout.py:" not in line]
