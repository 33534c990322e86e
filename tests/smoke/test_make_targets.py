"""Every target that `make help` lists runs in CI: whole, as part of `make test`, or in a small form here.

NOT_RUN says which do not, and why.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

import pytest
import yaml

from support.recipes import Command, are_tests, commands, imports, variables_read

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
    "fuzz-schemas": Smoke({"SECONDS": "60"}, "and 0 findings"),
    # A draft model, logits processors, and a cache in which requests are preempted: three engines.
    "soak-speculation": Smoke({"DURATION": "1s", "SEED": "72"}, "1 seeds asked, 0 with differences"),
    "schema-table": Smoke({"SUITE": "{suite}", "OUT": "{out}"}, "written to {out}: docs/json-schema.md"),
    "bench-ranks": Smoke(
        {"VOCABULARY": "4096", "ROWS": "k3-b1-plain", "MODES": "ours", "REPS": "1", "OUT": "{out}"},
        "every batch is served to its end | yes | yes",
    ),
    # Both devices: the virtual GPU, and the tiny model with its draft model.
    "bench-speculation": Smoke(
        {
            "VOCABULARY": "4096",
            "CELLS": "ngram-k3-b1-plain,cpu-k3-b1-tasks",
            "MODES": "ours",
            "REPS": "1",
            "OUT": "{out}",
        },
        "every batch served, its masks a fresh matcher's | yes",
    ),
    "bench-grammar": Smoke(
        {"VOCABULARY": "4096", "EVERY": "200", "UNIQUE": "5", "MODES": "Auto", "OUT": "{out}"},
        "written to {out}",
    ),
    "bench-operator": Smoke(
        {"N": "3", "IDLE": "1", "CHANGE": "2", "RATE": "2", "OUT": "{out}"},
        "a restart writes nothing | 0 writes | yes",
    ),
    # With the device part, by Triton's interpreter.
    "bench-processors": Smoke(
        {
            "VOCABULARY": "4096",
            "CELLS": "k0-b1",
            "REPS": "2",
            "VLLM_USE_V2_MODEL_RUNNER": "1",
            "OUT": "{out}",
        },
        "ran in Triton's interpreter",
    ),
    "bench-cpu": Smoke({"MODES": "ours", "REPS": "1"}, "| ours |"),
    "bench-telemetry": Smoke({"MINUTES": "0.01"}, "| traces on, unsampled |"),
}
# The same program, which a module of `make test` imports and runs.
PLAYED: Final = {
    "client-table": ("support.client_types", "tests/contract/test_client_types.py"),
    "soak": ("support.soak", "tests/property/test_drawn_requests.py"),
    "cluster": ("devtools.cluster_demo", "tests/e2e/test_cluster_existing.py"),
    "cluster-down": ("devtools.cluster down", "tests/conftest.py"),
}
# Whose tests `make test` leaves out, and why.
NOT_RUN: Final = {
    "image": "tests/e2e build the same Dockerfile with buildah, on a base of their own",
    "push": "tests/e2e/test_cluster_existing.py pushes it to a registry of its own",
    "picture": "viewer and browser have 1 GB, and a person looks at the picture",
    "test-gpu": "CI has no GPU",
    "bench-gpu": "likewise",
    "test-keda": "KEDA takes minutes to build",
    "test-parsers": "ten pods take half an hour; the sample's pair runs in tests/e2e/test_run_reasoning.py",
}


def recipe(target: str) -> list[Command]:
    """Return the commands of a target, as make would run them."""
    done = subprocess.run(
        ["make", "--dry-run", "--always-make", "-o", ".venv/.dev", target],
        cwd=ROOT,
        env=ENV,
        capture_output=True,
        text=True,
        check=True,
    )
    return commands(done.stdout)


def targets() -> list[str]:
    """Return what `make help` lists."""
    listed = subprocess.run(
        ["make", "help"], cwd=ROOT, env=ENV, capture_output=True, text=True, check=True
    ).stdout
    return [name for line in listed.splitlines() if (name := line.split()[0]) != "help"]


def runs(target: str, words: list[str]) -> bool:
    """Return whether CI runs this command of a target in some form."""
    if words[0].endswith("/pytest"):
        return are_tests(words[1:])
    if target in PLAYED:
        program, module = PLAYED[target]
        return words[1:] == ["-m", *program.split()] and program.split()[0] in imports(ROOT / module)
    # What lint runs with --check, that is all but the writing.
    return target in NOT_RUN or [*words, "--check"] in [command.words for command in recipe("lint")]


def test_what_is_listed_here_is_a_target() -> None:
    assert {*SMOKES, *PLAYED, *NOT_RUN} <= set(targets())


@pytest.mark.parametrize("target", targets())
def test_a_target_of_make_help_runs_in_ci(target: str) -> None:
    if ["step", "make", target] in [command.words for command in commands((ROOT / ".ci/run").read_text())]:
        return
    if target in SMOKES or target == "lock":  # below
        return
    found = recipe(target)
    assert found
    for command in found:
        assert command.variables <= variables_read()
        assert runs(target, command.words), f"CI runs no form of {command.words}: give it one in SMOKES"
    if target in NOT_RUN:
        pytest.skip(NOT_RUN[target])


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


def test_the_image_is_built_and_pushed_by_whichever_builder_is_there(tmp_path: Path) -> None:
    builder = tmp_path / "podman"
    builder.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/asked\n')
    builder.chmod(0o755)
    found = ["make", "push", f"BUILDER={builder}"]
    refused = subprocess.run(found, cwd=ROOT, env=ENV, capture_output=True, text=True, check=False)
    assert refused.returncode
    assert "make push REGISTRY=registry.example/team" in refused.stdout
    done = subprocess.run(
        [*found, "REGISTRY=r.example/t"], cwd=ROOT, env=ENV, capture_output=True, text=True, check=True
    )
    version = yaml.safe_load((ROOT / "charts/guidedmodel/Chart.yaml").read_text())["appVersion"]
    assert (tmp_path / "asked").read_text().splitlines() == [
        f"build --platform=linux/amd64 --tag guidedmodel:{version} .",
        f"tag guidedmodel:{version} r.example/t/guidedmodel:{version}",
        f"push r.example/t/guidedmodel:{version}",
    ]
    assert "--set image.repository=r.example/t/guidedmodel" in done.stdout


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
