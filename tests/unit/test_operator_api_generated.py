"""The schema that the CRD has: what its fields do not reach."""

from typing import Any

from devtools import crd

[VERSION] = crd.custom_resource_definition()["spec"]["versions"]
ROOT = VERSION["schema"]["openAPIV3Schema"]


def names(schema: Any) -> set[str]:
    if not isinstance(schema, dict):
        return set()
    own = set(schema["properties"]) if isinstance(schema.get("properties"), dict) else set()
    return own | {name for each in schema.values() for name in names(each)}


def test_no_field_names_a_namespace() -> None:
    about = {name for name in names(ROOT["properties"]["spec"]) if "namespace" in name.lower()}
    # Who may connect to the pods, and beside whose pods they run: these are looked at, and nothing in them.
    assert about == {"namespaceLabels"}
