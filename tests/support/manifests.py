"""GuidedModels for tests: a small valid manifest, and changes to it."""

import copy
from collections.abc import Mapping
from typing import Any

import yaml

from guided_operator.api import GuidedModel, parse
from guided_operator.api.manifest import documents
from guided_operator.builders.children import after_pods, before_pods, config_map
from guided_operator.builders.configuration import config_file
from guided_operator.builders.grammars import map_name, merge
from guided_operator.builders.pod import pod_template
from guided_operator.builders.pod_paths import Site
from guided_operator.builders.revision_key import pod_key, revision_name
from guided_operator.builders.workload import workload

SITE = Site("guidedmodel:1")
REMOVED: Any = object()  # as a value of `changed`: the field is taken out


def minimal(name: str = "tiny") -> dict[str, Any]:
    """Return the smallest manifest that is valid."""
    return {
        "apiVersion": "guidedmodel.io/v1alpha1",
        "kind": "GuidedModel",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"model": {"uri": "pvc://models/tiny"}, "engine": {"image": "vllm/vllm-openai:v0.32.0"}},
    }


def load(text: str) -> GuidedModel:
    """Read a manifest of one GuidedModel."""
    [manifest] = documents(text)
    return parse(manifest)


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


def children_of(
    gm: GuidedModel, site: Site, sources: Mapping[str, Mapping[str, str]] | None = None
) -> list[dict[str, Any]]:
    """Return what is made of a GuidedModel, in an order in which it can be created; no ControllerRevision."""
    texts, _ = merge(gm, sources or {}, {})
    return [
        *before_pods(gm, site),
        config_map(gm, revision_name(gm.name, pod_key(gm)), config_file(gm, site)),
        config_map(gm, map_name(gm.name), texts),
        workload(gm, pod_template(gm, site), gm.spec.replicas),
        *after_pods(gm),
    ]


def pod_of(gm: GuidedModel, site: Site = SITE) -> dict[str, Any]:
    """Return the spec of a model's pod."""
    spec: dict[str, Any] = pod_template(gm, site)["spec"]
    return spec


def containers_of(gm: GuidedModel, site: Site = SITE) -> dict[str, dict[str, Any]]:
    """Return the containers of a model's pod by their names."""
    spec = pod_of(gm, site)
    return {each["name"]: each for each in (*spec["initContainers"], *spec["containers"])}


def environment(container: dict[str, Any]) -> dict[str, Any]:
    """Return a container's variables; None for what a Secret holds."""
    return {variable["name"]: variable.get("value") for variable in container.get("env", ())}


def as_text(manifest: dict[str, Any]) -> str:
    """Return a manifest as YAML."""
    return yaml.safe_dump(manifest)
