"""docs/security.md: every statement has its tests in security_page.yaml; and those of no other file."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from devtools.crd import custom_resource_definition

from guided_operator.builders.pod import pod_template
from guided_operator.builders.pod_paths import Site
from guided_operator.policy.reserved_options import refusal
from support.manifests import guided_model

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/security.md"
# Tests by the beginning of a statement; none for advice.
TESTS: dict[str, list[str]] = yaml.safe_load(Path(__file__).with_name("security_page.yaml").read_text())


def statements(text: str) -> list[str]:
    """Return the page's paragraphs, items of lists and rows of tables."""
    found = []
    for block in re.split(r"\n\s*\n", text):
        lines = block.strip().splitlines()
        if lines[0].startswith("|"):
            found += [line for line in lines[2:] if line.startswith("|")]
        else:
            found += re.split(r"\n(?=- )", "\n".join(lines))
    return [each for each in found if not each.startswith("#") and not re.fullmatch(r"[^.\n]+:", each)]


STATEMENTS = statements(PAGE.read_text())


@pytest.mark.parametrize("statement", STATEMENTS, ids=lambda text: re.sub(r"\W+", " ", text)[:50].strip())
def test_every_statement_has_its_tests(statement: str) -> None:
    plain = re.sub(r"[*`]", "", re.sub(r"\s+", " ", re.sub(r"^[-|] ", "", statement)))
    [beginning] = (each for each in TESTS if plain.startswith(each))
    for test in TESTS[beginning]:
        file, _, name = test.partition("::")
        assert re.search(rf"def {name}\(", (ROOT / file).read_text()), test


def test_no_tests_are_of_a_statement_that_is_gone() -> None:
    assert len(TESTS) == len(STATEMENTS)


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
    pod = pod_template(guided_model(), Site("guidedmodel:1"))["spec"]
    assert pod["enableServiceLinks"] is False


def test_domains_of_media_are_the_owners_to_limit() -> None:
    assert refusal("--allowed-media-domains") == ""
    assert "--allowed-media-domains" not in json.dumps(pod_template(guided_model(), Site("guidedmodel:1")))
