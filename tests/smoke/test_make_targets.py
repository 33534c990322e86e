"""The programs of all targets are there; the demo and what judges drawn inputs get to their ends."""

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
# As a user's shell has it: what `make test` hands down would name a folder, and perhaps be no run at all.
ENV: Final = {name: value for name, value in os.environ.items() if name not in {"MAKEFLAGS", "MAKELEVEL"}}
# What each prints when it got to its end.
WHOLE: Final = {
    "demo": "everything was as promised, and everything is stopped",
    "fuzz TARGET=page SECONDS=1": "stat::number_of_executed_units",
    "fuzz-schemas SECONDS=5": "and 0 findings",
}


def make(*words: str) -> str:
    """Run make, and return what it printed; a failure is one of the test."""
    done = subprocess.run(
        ["make", *words],
        cwd=ROOT,
        env=ENV,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-6000:]
    return done.stdout


def programs() -> list[tuple[str, str]]:
    """Return the Python programs of all targets: where they are looked for, and their module or file."""
    targets = [line.split()[0] for line in make("help").splitlines()]
    recipes = make("--dry-run", "--always-make", "-o", ".venv/.dev", *targets)
    called = r"(?:PYTHONPATH=(\S+) )?(?:\w+=\S* )*\.venv/bin/python (?:-m )?([\w./]+)"
    return sorted(set(re.findall(rf"^{called}", recipes, re.MULTILINE)))


@pytest.mark.timeout(600)
@pytest.mark.parametrize("target", WHOLE)
def test_a_target_gets_to_its_end(target: str) -> None:
    assert WHOLE[target] in make(*target.split())


def test_every_program_of_a_target_is_there() -> None:
    """What it imports is mypy's to say, and the tests', which import the rest."""
    found = programs()
    assert len(found) > 15
    for places, program in found:
        name = program.removesuffix(".py").replace(".", "/")
        at = [ROOT, *(ROOT / place for place in (places or "tools:operator").split(":"))]
        assert any((here / f"{name}{end}").is_file() for here in at for end in (".py", "/__main__.py")), (
            program
        )


@pytest.mark.timeout(300)
def test_requirements_are_those_that_pyproject_asks_for(tmp_path: Path) -> None:
    """`make lock` changes nothing: pins that are there stay, and nothing is missing or too much."""
    for name in ("Makefile", "pyproject.toml", "tools/lock", "requirements"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (shutil.copytree if (ROOT / name).is_dir() else shutil.copy)(ROOT / name, tmp_path / name)
    (tmp_path / "tools/uv").symlink_to(ROOT / "tools/uv")
    subprocess.run(["make", "lock"], cwd=tmp_path, env=ENV, check=True)
    for file in (ROOT / "requirements").iterdir():
        assert (tmp_path / "requirements" / file.name).read_text() == file.read_text(), file.name
