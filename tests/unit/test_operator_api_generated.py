"""What is made from the models is up to date, and has the form that an API server takes."""

from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from devtools import api_reference as reference

from guided_operator.api import crd

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("module", [crd, reference], ids=["crd", "reference"])
def test_file_is_up_to_date(monkeypatch: pytest.MonkeyPatch, module: ModuleType) -> None:
    monkeypatch.chdir(ROOT)
    assert module.main(["--check"]) == 0


@pytest.mark.parametrize("module", [crd, reference], ids=["crd", "reference"])
def test_difference_is_found_and_mended(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    module: ModuleType,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    tmp_path.joinpath("docs").mkdir()
    assert module.main(["--check"]) == 1
    assert "out of date" in capsys.readouterr().err
    assert module.main([]) == 0
    assert module.main(["--check"]) == 0


def nodes(node: Any, path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    if isinstance(node, dict):
        yield path, node
        for key, child in node.items():
            yield from nodes(child, f"{path}.{key}")


def test_schema_is_structural() -> None:
    schema = crd.custom_resource_definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    for path, node in nodes(schema, ""):
        assert not {"$ref", "$defs", "title", "const", "exclusiveMinimum"} & set(node), path
        assert not {"properties", "additionalProperties"} <= set(node), path
        assert {"type": "null"} not in node.get("anyOf", []), path


def test_status_has_no_default_but_that_nobody_has_seen_the_spec() -> None:
    schema = crd.custom_resource_definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    status = schema["properties"]["status"]
    assert [path for path, node in nodes(status, "") if "default" in node] == [""]
    assert status["default"] == {"observedGeneration": -1}
