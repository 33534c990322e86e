"""Reading manifests: what is valid, and that every fault is named by its field."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from guided_operator.api import GuidedModelSpec, ManifestError, parse
from guided_operator.api.base import seconds
from guided_operator.api.crd import schema_of
from guided_operator.api.manifest import documents
from support.manifests import REMOVED, as_text, changed, load, minimal

SAMPLES = sorted(Path(__file__).parents[2].joinpath("manifests", "samples").glob("*.yaml"))


def faults(text: str) -> list[str]:
    with pytest.raises(ManifestError) as caught:
        load(text)
    return str(caught.value).splitlines()


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: path.stem)
def test_every_sample_is_valid(sample: Path) -> None:
    assert load(sample.read_text()).kind == "GuidedModel"


def test_the_sample_for_one_gpu_asks_for_no_token_class_or_claim() -> None:
    [sample] = (each for each in SAMPLES if each.stem == "qwen-one-gpu")
    spec = load(sample.read_text()).spec
    assert (spec.parallelism.ranks, spec.pod.runtime_class_name) == (1, None)
    assert (spec.model.auth_secret_key_ref, spec.storage.hub.persistent_volume_claim) == (None, None)
    assert re.fullmatch("[0-9a-f]{40}", str(spec.model.revision)), "a branch moves"


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: path.stem)
def test_every_sample_says_what_it_needs(sample: Path) -> None:
    """Without requests the scheduler puts a model where there is no room for it."""
    resources = load(sample.read_text()).spec.resources
    assert {"cpu", "memory"} <= resources.requests.keys()


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"engine__image": REMOVED}, ["spec.engine.image: is required"]),
        ({"replica": 2}, ["spec.replica: unknown field, did you mean replicas?"]),
        # By the name that our code gives it the API server does not know it, either.
        ({"guided_decoding": {}}, ["spec.guided_decoding: unknown field, did you mean guidedDecoding?"]),
        ({"speculative": {"method": "NGram", "numTokens": 3, "draftmodel": 1}}, ["did you mean draftModel?"]),
        (
            {"engine__accelerator": {"type": "GPU"}},
            ["spec.engine.accelerator.type: must be 'Resource', 'Claims' or 'None', is 'GPU'"],
        ),
        ({"parallelism__tensor": True}, ["spec.parallelism.tensor: input should be a valid integer"]),
        ({"probes__stallTimeout": "1s"}, ["spec.probes.stallTimeout: must be between 5s and 1h, is 1s"]),
        (
            {"guidedDecoding": {"compile": {"memory": "127Mi"}}},
            ["spec.guidedDecoding.compile.memory: must be between 128Mi and 1Ti, is 127Mi"],
        ),
        ({"model__uri": "s3://bucket/m"}, ["spec.model.uri: must match ^(hf://", "is 's3://bucket/m'"]),
        (
            {"engine__env": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]},
            ["spec.engine.env: names must be unique; duplicate: A"],
        ),
        (
            {"speculative": {"method": "DraftModel", "numTokens": 3, "asyncScheduling": True}},
            ["spec.speculative.asyncScheduling: must be", "quote it"],
        ),
        (
            {"speculative": {"method": "NGram", "numTokens": [3]}},
            ["spec.speculative.numTokens: must be a number of draft tokens, or Auto"],
        ),
        ({"model": None}, ["spec.model: is required"]),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_fault_is_named_by_field_and_reason(fields: dict[str, Any], expected: list[str]) -> None:
    lines = faults(as_text(changed(minimal(), **fields)))
    assert len(lines) == 1
    for part in expected:
        assert part in lines[0]


def test_null_is_nothing_as_on_the_server() -> None:
    asked = {"method": "NGram", "numTokens": 2, "asyncScheduling": None}
    unset = {"parallelism": {"pipeline": None}, "engine__env": None, "logitsProcessors": None}
    read = load(as_text(changed(minimal(), speculative=asked, **unset)))
    plain = changed(minimal(), speculative={"method": "NGram", "numTokens": 2})
    assert read == load(as_text(plain))


def test_every_fault_gets_a_line() -> None:
    manifest = changed(minimal(), engine__image=REMOVED, replica=1, parallelism__tensor=0)
    assert [line.split(":")[0] for line in faults(as_text(manifest))] == [
        "spec.engine.image",
        "spec.parallelism.tensor",
        "spec.replica",
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: [", "line 1: not YAML"),
        ("a: 1\nb: 2\na: 3\n", 'line 3: "a" is a duplicate key'),
        ("{1: 2, '1': 3}", 'line 1: "1" is a duplicate key'),
        ("a: 1\n? [b]\n: c\n", "line 2: a key must be text"),
        ("a: 1\n? {b: c}\n: d\n", "line 2: a key must be text"),
        ("null: 1", "line 1: a key must be text"),
        ("a: 1\nb: 2020-13-45", "line 2: not YAML: cannot be read as timestamp"),
        ("a: " + "9" * 5000, "line 1: not YAML: cannot be read as int"),
        ("kind: 0x" + "f" * 5000, "line 1: not YAML: cannot be read as int"),
        ("a: !!timestamp b", "line 1: not YAML: cannot be read as timestamp"),
        ("a: !!bool b", "line 1: not YAML: cannot be read as bool"),
        ("a: !!int ''", "line 1: not YAML: cannot be read as int"),
        ("[" * 20000, "manifest: is nested too deeply"),
        ("{a: " * 5000, "manifest: is nested too deeply"),
        ("kind: Deployment\napiVersion: apps/v1\n", 'apiVersion: must be "guidedmodel.io/v1alpha1"'),
        ("kind: GuidedModel\napiVersion: guidedmodel.io/v1alpha1\n", "metadata: is required"),
        ("a: \x01", "line 1: not YAML"),
    ],
)
def test_text_that_is_no_guided_model(text: str, expected: str) -> None:
    assert expected in faults(text)[0]


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("{1: a, true: b}", ["1", "true"]),
        ("{200: a, 2020-01-01: b, 1.5: c, on: d}", ["200", "2020-01-01", "1.5", "true"]),
    ],
)
def test_a_key_is_its_text(text: str, keys: list[str]) -> None:
    (document,) = documents(text)
    assert list(document) == keys


def test_comments_and_empty_documents_around_the_manifest_do_not_matter() -> None:
    assert load(f"# a sample\n---\n{as_text(minimal())}\n---\n").name == "tiny"


def test_what_the_server_adds_is_accepted() -> None:
    manifest = minimal()
    manifest["metadata"] |= {"uid": "u", "generation": 3, "managedFields": [], "creationTimestamp": "x"}
    manifest["status"] = {
        "replicas": 1,
        "fieldOfANewerRelease": 1,
        "pods": {"worst": [{"name": "p", "more": 1}]},
    }
    gm = parse(manifest)
    assert (gm.metadata.uid, gm.metadata.generation) == ("u", 3)


def test_a_status_in_another_releases_shapes_makes_no_spec_invalid() -> None:
    """An upgrade stalled at it: a list had become a count, and the new operator called the spec Invalid."""
    manifest = minimal() | {"status": {"pods": [{"name": "p"}], "patches": [], "replicas": "one"}}
    assert parse(manifest) == parse(minimal())


@pytest.mark.parametrize(
    ("duration", "expected"), [("10s", 10), ("500ms", 0.5), ("1m30s", 90), ("2h", 7200), ("0s", 0)]
)
def test_durations(duration: str, expected: float) -> None:
    assert seconds(duration) == expected


@pytest.mark.parametrize("duration", ["", "10", "s", "-1s", "1.5s", "1d", "10 s"])
def test_no_durations(duration: str) -> None:
    with pytest.raises(ValueError, match="not a duration"):
        seconds(duration)


def fields_of(schema: dict[str, Any], path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, field in schema.get("properties", {}).items():
        yield f"{path}.{name}", field
        yield from fields_of(field, f"{path}.{name}")
        yield from fields_of(field.get("items", {}), f"{path}.{name}[]")


def required_in(schema: dict[str, Any], path: str) -> Iterator[str]:
    yield from (f"{path}.{name}" for name in schema.get("required", []))
    for name, field in schema.get("properties", {}).items():
        yield from required_in(field, f"{path}.{name}")
        yield from required_in(field.get("items", {}), f"{path}.{name}[]")


FIELDS = dict(fields_of(schema_of(GuidedModelSpec), "spec"))
REQUIRED = set(required_in(schema_of(GuidedModelSpec), "spec"))


@pytest.mark.parametrize("path", FIELDS)
def test_every_field_is_described_and_bounded(path: str) -> None:
    field = FIELDS[path]
    assert field.get("description", "").endswith(".")
    match field.get("type", "int-or-string"):
        case "string":
            assert "maxLength" in field or "enum" in field
        case "array":
            assert "maxItems" in field
        case "integer":
            assert {"minimum", "maximum"} <= set(field) or "enum" in field
        case "object":
            as_in_a_pod = path.startswith("spec.pod.") and "x-kubernetes-preserve-unknown-fields" in field
            assert "properties" in field or "maxProperties" in field or as_in_a_pod
    # So that `kubectl explain`, which marks what is required, says what follows when a field is left out.
    assert path in REQUIRED or "properties" in field or "Default: " in field["description"]
