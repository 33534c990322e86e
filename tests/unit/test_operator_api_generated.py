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


def nodes(node: Any, path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    if isinstance(node, dict):
        yield path, node
        for key, child in node.items():
            yield from nodes(child, f"{path}.{key}")


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
