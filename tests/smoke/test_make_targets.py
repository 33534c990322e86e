"""Every target that `make help` lists runs in CI: whole, as part of `make test`, or in a small form here."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

import pytest

ROOT: Final = Path(__file__).parents[2]
# As a user's shell has it: what `make test` hands down would name a folder, and perhaps be no run at all.
ENV: Final = {name: value for name, value in os.environ.items() if name not in {"MAKEFLAGS", "MAKELEVEL"}}


class Smoke(NamedTuple):
    """A small form of a target: its variables, and what it prints when it got to its end."""

    variables: Mapping[str, str]
    prints: str


# A missed bar is no failure here: so small a run measures nothing.
SMOKES: Final = {
    "demo": Smoke({}, "everything was as promised, and everything is stopped"),
    "fuzz": Smoke({"TARGET": "peers", "SECONDS": "1"}, "stat::number_of_executed_units"),
    "schema-table": Smoke({"SUITE": "{suite}", "OUT": "{out}"}, "written to {out}: docs/json-schema.md"),
    "bench-ranks": Smoke(
        {"VOCABULARY": "4096", "ROWS": "k3-b1-plain", "MODES": "ours", "REPS": "1", "OUT": "{out}"},
        "every batch is served to its end | yes | yes",
    ),
    "bench-grammar": Smoke(
        {"VOCABULARY": "4096", "EVERY": "200", "UNIQUE": "5", "MODES": "Auto", "OUT": "{out}"},
        "written to {out}",
    ),
    "bench-operator": Smoke(
        {"N": "3", "IDLE": "1", "CHANGE": "2", "RATE": "2", "OUT": "{out}"},
        "a restart writes nothing | 0 writes | yes",
    ),
    "bench-cpu": Smoke({"MODES": "ours", "REPS": "1"}, "| ours |"),
    "bench-telemetry": Smoke({"MINUTES": "0.01"}, "| traces on, unsampled |"),
}
# The same program, run by a module of `make test`.
PLAYED: Final = {
    "soak": ("support.soak", "tests/property/test_drawn_requests.py"),
    "cluster": ("devtools.cluster_demo", "tests/e2e/test_cluster_existing.py"),
    "cluster-down": ("devtools.cluster", "tests/conftest.py"),
}


def recipe(target: str) -> str:
    """Return the commands of a target, as make would run them."""
    done = subprocess.run(
        ["make", "--dry-run", "--always-make", "-o", ".venv/.dev", target],
        cwd=ROOT,
        env=ENV | {"PICTURE": ""},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def targets() -> list[str]:
    """Return what `make help` lists."""
    listed = subprocess.run(
        ["make", "help"], cwd=ROOT, env=ENV, capture_output=True, text=True, check=True
    ).stdout
    return [name for line in listed.splitlines() if (name := line.split()[0]) != "help"]


@pytest.mark.parametrize("target", targets())
def test_a_target_of_make_help_runs_in_ci(target: str) -> None:
    commands = recipe(target)
    if f"make {target}\n" in (ROOT / ".ci/run").read_text():
        return
    if target in SMOKES or target == "lock":
        return
    if target in PLAYED:
        program, module = PLAYED[target]
        assert f"-m {program}" in commands
        assert program.rpartition(".")[2] in (ROOT / module).read_text()
        return
    if target == "generate":  # lint runs each of its programs with --check
        assert {line.split(" -m ")[1] + " --check" for line in commands.splitlines()} <= {
            line.split(" -m ")[1] for line in recipe("lint").splitlines() if " -m " in line
        }
        return
    # Tests of `make test`, perhaps more of them: the path is there, and so is who reads the variable.
    paths = re.findall(r"\btests/[\w/.]+", commands)
    assert paths, f"CI runs no form of `make {target}`: give it one in SMOKES"
    assert all((ROOT / path).exists() for path in paths)
    for variable in re.findall(r"\b([A-Z]+)=\w+ \S+pytest", commands):
        read = f'environ.get("{variable}"'
        assert any(
            read in file.read_text() for tree in ("tests", "tools") for file in (ROOT / tree).rglob("*.py")
        )


@pytest.mark.timeout(600)
@pytest.mark.parametrize("target", SMOKES)
def test_the_small_form_of_a_target_gets_to_its_end(target: str, tmp_path: Path) -> None:
    smoke = SMOKES[target]
    places = {"out": str(tmp_path / "out"), "suite": str(suite(tmp_path / "suite"))}
    done = subprocess.run(
        ["make", target, *(f"{name}={value.format(**places)}" for name, value in smoke.variables.items())],
        cwd=ROOT,
        env=ENV,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert "Traceback" not in done.stdout, done.stdout[-6000:]
    assert smoke.prints.format(**places) in done.stdout, done.stdout[-6000:]


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


def suite(folder: Path) -> Path:
    """Write a JSON-Schema-Test-Suite of ten schemas, two of each keyword."""
    keywords = {
        "type": ({"type": "integer"}, 1, "x"),
        "enum": ({"enum": ["a", "b"]}, "a", "c"),
        "required": ({"type": "object", "required": ["a"]}, {"a": 1}, {}),
        "minLength": ({"type": "string", "minLength": 2}, "ab", "a"),
        "items": ({"type": "array", "items": {"type": "boolean"}}, [True], [1]),
    }
    for draft in ("draft2020-12", "draft7"):
        (folder / draft).mkdir(parents=True)
        for keyword, (schema, right, wrong) in keywords.items():
            cases = [
                {"description": "right", "data": right, "valid": True},
                {"description": "wrong", "data": wrong, "valid": False},
            ]
            group = {"description": keyword, "schema": schema, "tests": cases}
            (folder / draft / f"{keyword}.json").write_text(json.dumps([group]))
    return folder
