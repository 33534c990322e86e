"""Statements of docs/security.md that no other file tests; and the tests that the page names are there."""

import json
import re
from pathlib import Path
from typing import Any

from guided_operator.api.crd import custom_resource_definition
from guided_operator.builders import Site, render
from guided_operator.policy.reserved_options import refusal
from support.manifests import guided_model

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/security.md"


def test_the_tests_that_the_page_names_are_there() -> None:
    named = re.findall(r"(tests/\w+/\w+\.py)::(\w+)", PAGE.read_text())
    assert [(file, test) for file, test in named if f"def {test}(" not in (ROOT / file).read_text()] == []


def names(schema: Any) -> set[str]:
    if isinstance(schema, list):
        return {name for each in schema for name in names(each)}
    if not isinstance(schema, dict):
        return set()
    own = set(schema["properties"]) if isinstance(schema.get("properties"), dict) else set()
    return own | {name for each in schema.values() for name in names(each)}


def test_no_field_names_a_namespace() -> None:
    version = custom_resource_definition()["spec"]["versions"][0]
    fields = names(version["schema"]["openAPIV3Schema"]["properties"]["spec"])
    about = {name for name in fields if "namespace" in name.lower()}
    # Who may connect to the pods, and beside whose pods they run: these are looked at, and nothing in them.
    assert about == {"namespaceLabels", "namespaceSelector", "namespaces"} & fields


def test_services_of_a_namespace_set_no_variables() -> None:
    pod = render(guided_model(), Site("guidedmodel:1")).pods["spec"]
    assert pod["enableServiceLinks"] is False


def test_domains_of_media_are_the_owners_to_limit() -> None:
    assert refusal("--allowed-media-domains") == ""
    assert "--allowed-media-domains" not in json.dumps(render(guided_model(), Site("guidedmodel:1")).pods)
