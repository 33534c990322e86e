"""Reading manifests: what is valid, and that every fault is named by its field."""

from collections.abc import Callable
from typing import Any

import pytest

from guided_operator.api import ManifestError, parse
from guided_operator.api.base import seconds
from guided_operator.api.manifest import documents
from guided_operator.api.quantity import canonical
from support.manifests import REMOVED, as_text, changed, load, minimal


def faults(text: str) -> list[str]:
    with pytest.raises(ManifestError) as caught:
        load(text)
    return str(caught.value).splitlines()


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
            {"speculative": {"method": "DraftModel", "numTokens": 3, "asyncScheduling": True}},
            ["spec.speculative.asyncScheduling: must be", "quote it"],
        ),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_fault_is_named_by_field_and_reason(fields: dict[str, Any], expected: list[str]) -> None:
    lines = faults(as_text(changed(minimal(), **fields)))
    assert len(lines) == 1
    for part in expected:
        assert part in lines[0]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: [", "line 1: not YAML"),
        ("a: 1\nb: 2\na: 3\n", 'line 3: "a" is a duplicate key'),
        ("a: 1\n? [b]\n: c\n", "line 2: a key must be text"),
        ("a: 1\nb: 2020-13-45", "line 2: not YAML: cannot be read as timestamp"),
        ("a: " + "9" * 5000, "line 1: not YAML: cannot be read as int"),
        ("[" * 1000, "manifest: is nested too deeply"),
        ("kind: Deployment\napiVersion: apps/v1\n", 'apiVersion: must be "guidedmodel.io/v1alpha1"'),
        ("kind: GuidedModel\napiVersion: guidedmodel.io/v1alpha1\n", "metadata: is required"),
        ("a: \x01", "line 1: not YAML"),
    ],
)
def test_text_that_is_no_guided_model(text: str, expected: str) -> None:
    assert expected in faults(text)[0]


def test_a_key_is_its_text() -> None:
    (document,) = documents("{200: a, 2020-01-01: b, 1.5: c, on: d}")
    assert list(document) == ["200", "2020-01-01", "1.5", "true"]


def test_a_status_in_another_releases_shapes_makes_no_spec_invalid() -> None:
    """An upgrade stalled at it: a list had become a count, and the new operator called the spec Invalid."""
    manifest = minimal() | {"status": {"pods": [{"name": "p"}], "patches": [], "replicas": "one"}}
    assert parse(manifest) == parse(minimal())


@pytest.mark.parametrize(("text", "expected"), [("500ms", 0.5), ("1m30s", 90), ("2h", 7200)])
def test_durations(text: str, expected: float) -> None:
    assert seconds(text) == expected


@pytest.mark.parametrize(
    ("read", "text"),
    [
        *((seconds, text) for text in ("", "10", "-1s", "1.5s", "1d")),
        *((canonical, text) for text in ("", "two", "1 Gi", "1KiB", "1..2", "1e99", "1e1.5", "e3", ".")),
    ],
)
def test_no_duration_and_no_quantity(read: Callable[[str], object], text: str) -> None:
    with pytest.raises(ValueError, match=r"not a duration|quantity|range"):
        read(text)
