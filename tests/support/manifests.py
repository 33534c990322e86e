"""GuidedModels for tests: a small valid manifest, and changes to it."""

import copy
from typing import Any

import yaml

from guided_operator.api import GuidedModel, parse

REMOVED: Any = object()  # as a value of `changed`: the field is taken out


def minimal(name: str = "tiny") -> dict[str, Any]:
    """Return the smallest manifest that is valid."""
    return {
        "apiVersion": "guidedmodel.io/v1alpha1",
        "kind": "GuidedModel",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"model": {"uri": "pvc://models/tiny"}, "engine": {"image": "vllm/vllm-openai:v0.32.0"}},
    }


def changed(manifest: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """Return a copy of the manifest with fields of the spec set: `engine__args=[...]` is spec.engine.args."""
    copied = copy.deepcopy(manifest)
    for path, value in fields.items():
        node = copied["spec"]
        *parents, last = path.split("__")
        for parent in parents:
            node = node.setdefault(parent, {})
        if value is REMOVED:
            del node[last]
        else:
            node[last] = value
    return copied


def guided_model(name: str = "tiny", **fields: Any) -> GuidedModel:
    """Return a GuidedModel with fields of the spec set, as `changed` takes them."""
    return parse(changed(minimal(name), **fields))


def as_text(manifest: dict[str, Any]) -> str:
    """Return a manifest as YAML."""
    return yaml.safe_dump(manifest)
