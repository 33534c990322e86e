"""A pod through the libraries that people use, in an environment of their own (requirements/clients.txt).

Tried from outside: arguments of tools were `false`, which each of these shows its users in another way.
"""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from devtools import venvs
from devtools.golang import MissingToolError

from support.clients import cases
from support.clients.cases import CASES, Case
from support.cluster import unavailable
from support.pod import Pod

pytestmark = [pytest.mark.engine, pytest.mark.timeout(1200)]

TESTS = Path(__file__).parents[1]
TIMEOUT_S = 300


@pytest.fixture(scope="module")
def told(thinking_pod: Pod) -> dict[tuple[str, str], dict[str, Any]]:
    """What every call gave, by the libraries' own Python."""
    try:
        python = venvs.path("clients") / "bin/python"
    except MissingToolError as error:
        unavailable(error)
    done = subprocess.run(
        [python, "-m", "support.clients", thinking_pod.url],
        env={**os.environ, "PYTHONPATH": str(TESTS)},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return {(line["library"], line["call"]): line for line in lines}


def of(shape: str) -> list[Case]:
    return [case for case in CASES if isinstance(case.gives, str) == (shape == "objects")]


def name(case: Case) -> str:
    return f"{case.library}: {case.call}"


@pytest.mark.parametrize("case", of("objects"), ids=name)
def test_a_library_gives_what_was_asked_for(told: Any, case: Case) -> None:
    line = told[case.library, case.call]
    assert "error" not in line, json.dumps(line["error"])[:3000]
    assert line["values"]
    for value in line["values"]:
        jsonschema.validate(value, cases.schema(str(case.gives)))


@pytest.mark.parametrize("case", of("errors"), ids=name)
def test_a_library_shows_what_is_wrong(told: Any, case: Case) -> None:
    line = told[case.library, case.call]
    assert "error" in line, line
    assert isinstance(case.gives, dict)
    assert case.gives.items() <= line["error"].items(), line
    assert line["error"]["request_id"] or "status" not in case.gives, line
