"""What `make fuzz-schemas DOCUMENTS=` takes out of others' archives."""

import io
import json
import tarfile
from pathlib import Path

import jsonschema
import pytest

from support.compositions import documents

OPENAPI = {
    "openapi": "3.1.0",
    "components": {
        "schemas": {
            "a/b": {"type": "object", "properties": {"to": {"$ref": "#/components/schemas/other/items"}}},
            "other": {"type": "array", "items": {"type": "integer"}},
            "far": {"$ref": "https://schemas.test/far.json"},
        }
    },
}
SCHEMA = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "$ref": "#/definitions/tree",
    "definitions": {"tree": {"type": "array", "items": {"$ref": "#/definitions/tree"}}, "x": {"const": 1}},
}
NO_SCHEMAS = [b"{", b"[]", b'{"name": "a"}', b'{"$schema": 1}', b'{"$schema": "https://schemas.test/own"}']


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with tarfile.open(tmp_path / "package.tgz", "w:gz") as archive:
        for number, text in enumerate([json.dumps(OPENAPI).encode(), *NO_SCHEMAS]):
            member = tarfile.TarInfo(f"package/{number}.json")
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text))
    (tmp_path / "schema.json").write_text(json.dumps(SCHEMA))
    (tmp_path / "README").write_text("{}")
    return tmp_path


def test_each_component_stands_alone_with_what_it_refers_to(folder: Path) -> None:
    drawn = {schema["$ref"]: schema for schema in documents.drawn(folder) if "components" in schema}
    assert drawn.keys() == {"#/components/schemas/a~1b", "#/components/schemas/other"}
    judge = jsonschema.Draft202012Validator(drawn["#/components/schemas/a~1b"])
    assert (judge.is_valid({"to": 1}), judge.is_valid({"to": "1"})) == (True, False)
    assert drawn["#/components/schemas/other"]["components"]["schemas"].keys() == {"other"}


def test_a_schema_and_its_definitions_are_taken_once(folder: Path) -> None:
    drawn = [schema for schema in documents.drawn(folder) if "definitions" in schema]
    assert [schema["definitions"].keys() for schema in drawn if schema["$ref"].endswith("x")] == [{"x"}]
    assert SCHEMA in drawn
    assert len(drawn) == 3
