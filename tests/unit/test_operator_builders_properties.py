"""What holds for every GuidedModel that the API takes."""

import json
from collections.abc import Iterator
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from guided_operator.api import GuidedModel, parse
from guided_operator.api.quantity import canonical
from guided_operator.builders import cluster_site, manifest, pod_key, render
from support.drawn import FIELDS, MODELS
from support.manifests import changed, minimal

# Other tests may hold the CPU: how long one example takes says nothing.
unhurried = settings(deadline=None)

SITE = cluster_site("guidedmodel:1")


def rendered(gm: GuidedModel) -> list[dict[str, Any]]:
    return render(gm, SITE).manifests()


def template(gm: GuidedModel) -> dict[str, Any]:
    return manifest(render(gm, SITE).template)


def as_served(gm: GuidedModel) -> dict[str, Any]:
    """Return the resource as the API server stores it: every default written out."""
    return gm.model_dump(by_alias=True, exclude_none=True, exclude={"status"})


def containers(gm: GuidedModel) -> list[dict[str, Any]]:
    spec = template(gm)["spec"]
    return [*spec["initContainers"], *spec["containers"]]


def leaves(node: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(node, dict | list):
        items = node.items() if isinstance(node, dict) else enumerate(node)
        for key, value in items:
            yield from leaves(value, f"{path}.{key}")
    else:
        yield path, node


@unhurried
@given(FIELDS)
def test_same_input_gives_the_same_bytes(fields: dict[str, Any]) -> None:
    first, second = (rendered(parse(changed(minimal(), **fields))) for _ in range(2))
    assert json.dumps(first) == json.dumps(second)


@unhurried
@given(MODELS)
def test_defaults_that_the_server_writes_out_change_nothing(gm: GuidedModel) -> None:
    stored = parse(json.loads(json.dumps(as_served(gm))))
    assert rendered(stored) == rendered(gm)
    assert pod_key(stored) == pod_key(gm)


@unhurried
@given(MODELS, st.integers(0, 100))
def test_scaling_restarts_no_pod(gm: GuidedModel, replicas: int) -> None:
    scaled = parse(changed(as_served(gm), replicas=replicas))
    assert pod_key(scaled) == pod_key(gm)
    assert template(scaled) == template(gm)


@unhurried
@given(MODELS, MODELS)
def test_pods_that_differ_have_different_keys(one: GuidedModel, other: GuidedModel) -> None:
    templates = [template(gm)["spec"] for gm in (one, other)]
    configurations = [render(gm, SITE).config_map.data for gm in (one, other)]
    if templates[0] != templates[1] or configurations[0] != configurations[1]:
        assert pod_key(one) != pod_key(other)


@unhurried
@given(MODELS)
def test_quantities_are_canonical(gm: GuidedModel) -> None:
    for path, value in leaves(template(gm)):
        if ".resources." in path or path.endswith("sizeLimit"):
            assert value == canonical(value), path


@unhurried
@given(MODELS)
def test_pods_keep_the_restricted_pod_security_standard(gm: GuidedModel) -> None:
    spec = template(gm)["spec"]
    assert spec["automountServiceAccountToken"] is False
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["runAsUser"] > 0
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not any("shareProcessNamespace" in path for path, _ in leaves(template(gm)))
    for container in containers(gm):
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        }


@unhurried
@given(MODELS)
def test_every_mount_has_its_volume_and_every_volume_its_mount(gm: GuidedModel) -> None:
    volumes = [volume["name"] for volume in template(gm)["spec"]["volumes"]]
    mounts = [[mount["name"] for mount in container["volumeMounts"]] for container in containers(gm)]
    assert len(volumes) == len(set(volumes))
    assert set(volumes) == {name for names in mounts for name in names}
    for container in containers(gm):
        paths = [mount["mountPath"] for mount in container["volumeMounts"]]
        assert len(paths) == len(set(paths))


@unhurried
@given(MODELS)
def test_no_variable_is_set_twice(gm: GuidedModel) -> None:
    for container in containers(gm):
        names = [variable["name"] for variable in container.get("env", [])]
        assert len(names) == len(set(names))
