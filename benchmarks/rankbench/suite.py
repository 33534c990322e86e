"""Public schemas: those of JSON-Schema-Test-Suite, from a folder that is not the project's."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from rankbench.instances import Schema

DRAFT: Final = "draft2020-12"
LEFT_OUT: Final = (
    "JSON-Schema-Test-Suite is left out of the public schemas: name a checkout's `tests` folder by SUITE= "
    "(github.com/json-schema-org/JSON-Schema-Test-Suite)"
)


def files(folder: Path) -> list[Path]:
    """Return the suite's files, in the order of their names.

    Raises
    ------
    FileNotFoundError
        There are none.
    """
    found = sorted((folder / DRAFT).glob("*.json"))
    if not found:
        raise FileNotFoundError(f"no {DRAFT}/*.json in {folder}")
    return found


def case_schemas(folder: Path) -> Iterator[Schema]:
    """Yield the schemas of all test cases."""
    for file in files(folder):
        for case in json.loads(file.read_text()):
            if isinstance(case["schema"], dict):
                yield {key: value for key, value in case["schema"].items() if key != "$schema"}
