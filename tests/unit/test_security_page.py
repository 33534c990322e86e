"""docs/security.md: every statement names its tests; and those of its statements that no other file tests."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from devtools.crd import custom_resource_definition

from guided_operator.builders import Site, render
from guided_operator.policy.reserved_options import refusal
from support.manifests import guided_model

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/security.md"
MARK = re.compile(r"<!-- (tests: (?P<tests>[^>]+?)|advice) -->")


def statements(text: str) -> list[str]:
    """Return the page's paragraphs, items of lists and rows of tables, with their comments."""
    found = []
    for block in re.split(r"\n\s*\n", text):
        lines = block.strip().splitlines()
        if lines[0].startswith("|"):
            found += [line for line in lines[2:] if line.startswith("|")]
        else:
            found += re.split(r"\n(?=- )", "\n".join(lines))
    return [each for each in found if not each.startswith("#") and not re.fullmatch(r"[^.\n]+:", each)]


STATEMENTS = statements(PAGE.read_text())


def test_the_page_is_read_as_it_is_written() -> None:
    text = "# A\n\nOne.\n\nTheir:\n\n- two\n  more\n- three\n\n| a | b |\n|---|---|\n| 4 | 5 |\n"
    assert statements(text) == ["One.", "- two\n  more", "- three", "| 4 | 5 |"]
    assert len(STATEMENTS) > 40


@pytest.mark.parametrize("statement", STATEMENTS, ids=lambda text: re.sub(r"\W+", " ", text)[:50].strip())
def test_every_statement_names_its_tests(statement: str) -> None:
    [mark] = MARK.finditer(statement)
    ending = statement[mark.end() :].strip(" |\n")
    assert ending == "", "the comment is the statement's end"
    for test in (mark["tests"] or "").split():
        file, _, name = test.partition("::")
        assert re.search(rf"def {name}\(", (ROOT / file).read_text()), test


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
