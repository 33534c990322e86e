"""What is made from the models is up to date, and has the form that an API server takes."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from devtools import api_reference as reference
from devtools import crd

ROOT = Path(__file__).parents[2]


def test_files_are_up_to_date(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert reference.main(["--check"]) == 0


def test_difference_is_found_and_mended(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert reference.main(["--check"]) == 1
    told = capsys.readouterr().err
    assert "out of date" in told
    assert str(crd.CRD_FILE) in told
    assert reference.main([]) == 0
    assert reference.main(["--check"]) == 0


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


def test_every_column_shows_what_the_schema_has() -> None:
    [version] = crd.custom_resource_definition()["spec"]["versions"]
    root = version["schema"]["openAPIV3Schema"]
    types = root["properties"]["status"]["properties"]["conditions"]["description"]
    shown = {column["name"]: column for column in version["additionalPrinterColumns"]}
    assert shown.pop("Age")["jsonPath"] == ".metadata.creationTimestamp"
    for column in shown.values():
        node = root
        for name, condition in re.findall(r"\.(\w+)(?:\[\?\(@\.type==\"(\w+)\"\)\])?", column["jsonPath"]):
            node = node["properties"][name]
            if condition:
                node = node["items"]
                assert condition in types
        assert node["type"] == column["type"], column


# As Kubernetes has them: SecretKeySelector, LocalObjectReference, PersistentVolumeClaimVolumeSource.
SHAPES = {
    "keyref": {"name", "key"},
    "persistentvolumeclaim": {"claimName"},
}


def references(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, str, set[str]]]:
    """Yield path, ending and fields of each reference to another object."""
    for name, child in schema.get("properties", {}).items():
        for ending in SHAPES:
            if name.lower().endswith(ending):
                yield f"{path}.{name}", ending, set(child["properties"])
        yield from references(child, f"{path}.{name}")
    if "items" in schema:
        yield from references(schema["items"], f"{path}[]")


def test_a_references_name_says_its_shape() -> None:
    version = crd.custom_resource_definition()["spec"]["versions"][0]
    spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    found = list(references(spec))
    assert {ending for _, ending, _ in found} == set(SHAPES)
    assert [(path, fields) for path, ending, fields in found if fields - {"readOnly"} != SHAPES[ending]] == []


# Every other list is atomic: what comes first in it means something, or nobody applies a part of it.
MERGED = {
    "engine.env": "as in Kubernetes' containers",
    "guidedDecoding.requestOptions": "a choice is there or not",
    "guidedDecoding.grammars": "requests name one",
    "lora.adapters": "requests name one",
    "engine.accelerator.claims": "as in Kubernetes' pods",
    "pod.imagePullSecrets": "as in Kubernetes' pods",
    "pod.resourceClaims": "as in Kubernetes' pods",
    "pod.volumes": "as in Kubernetes' pods",
}


def test_lists_whose_order_means_something_are_not_merged() -> None:
    schema = crd.custom_resource_definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    found = {
        path.replace(".properties", "").removeprefix(".")
        for path, node in nodes(schema["properties"]["spec"], "")
        if node.get("x-kubernetes-list-type", "atomic") != "atomic"
    }
    assert found == MERGED.keys()
