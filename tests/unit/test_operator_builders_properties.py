"""What holds for every GuidedModel that the API takes."""

import json
from collections.abc import Iterator
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from guided_operator.api import GuidedModel, parse
from guided_operator.api.quantity import canonical
from guided_operator.builders.configuration import config_file
from guided_operator.builders.pod import pod_template
from guided_operator.builders.pod_paths import Site
from guided_operator.builders.revision_key import pod_key
from support.drawn import FIELDS, MODELS
from support.manifests import changed, children_of, minimal

Object = dict[str, Any]
SITE = Site("guidedmodel:1")


def rendered(gm: GuidedModel) -> list[dict[str, Any]]:
    return children_of(gm, SITE)


def template(gm: GuidedModel) -> Object:
    return pod_template(gm, SITE)


def as_served(gm: GuidedModel) -> dict[str, Any]:
    """Return the resource as the API server stores it: every default written out."""
    return gm.model_dump(by_alias=True, exclude_none=True, exclude={"status"})


def leaves(node: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(node, dict | list):
        items = node.items() if isinstance(node, dict) else enumerate(node)
        for key, value in items:
            yield from leaves(value, f"{path}.{key}")
    else:
        yield path, node


@given(FIELDS, st.integers(0, 100))
def test_what_stays_the_same_restarts_no_pod(fields: dict[str, Any], replicas: int) -> None:
    """The same input, defaults that the API server writes out, another number of replicas."""
    first, gm = (parse(changed(minimal(), **fields)) for _ in range(2))
    assert json.dumps(rendered(first)) == json.dumps(rendered(gm))

    stored = parse(json.loads(json.dumps(as_served(gm))))
    assert rendered(stored) == rendered(gm)
    assert pod_key(stored) == pod_key(gm)

    scaled = parse(changed(as_served(gm), replicas=replicas))
    assert pod_key(scaled) == pod_key(gm)
    assert template(scaled) == template(gm)


@given(MODELS, MODELS)
def test_pods_that_differ_have_different_keys(one: GuidedModel, other: GuidedModel) -> None:
    templates = [template(gm)["spec"] for gm in (one, other)]
    configurations = [config_file(gm, SITE) for gm in (one, other)]
    if templates[0] != templates[1] or configurations[0] != configurations[1]:
        assert pod_key(one) != pod_key(other)


@given(MODELS)
def test_every_pod_is_canonical_restricted_and_consistent(gm: GuidedModel) -> None:
    made = template(gm)
    containers = [*made["spec"]["initContainers"], *made["spec"]["containers"]]
    quantities_are_canonical(made)
    pods_keep_the_restricted_pod_security_standard(made, containers)
    every_mount_has_its_volume_and_every_volume_its_mount(made, containers)
    no_variable_is_set_twice(containers)


def quantities_are_canonical(made: Object) -> None:
    for path, value in leaves(made):
        if ".resources.requests." in path or ".resources.limits." in path or path.endswith("sizeLimit"):
            assert value == canonical(value), path


def pods_keep_the_restricted_pod_security_standard(made: Object, containers: list[Object]) -> None:
    spec = made["spec"]
    assert spec["automountServiceAccountToken"] is False
    assert spec["enableServiceLinks"] is False, "Services of a namespace set no variables"
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["runAsUser"] > 0
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not any("shareProcessNamespace" in path for path, _ in leaves(made))
    for container in containers:
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        }


def every_mount_has_its_volume_and_every_volume_its_mount(made: Object, containers: list[Object]) -> None:
    volumes = [volume["name"] for volume in made["spec"]["volumes"]]
    mounts = [[mount["name"] for mount in container["volumeMounts"]] for container in containers]
    assert len(volumes) == len(set(volumes))
    assert set(volumes) == {name for names in mounts for name in names}
    for container in containers:
        paths = [mount["mountPath"] for mount in container["volumeMounts"]]
        assert len(paths) == len(set(paths))


def no_variable_is_set_twice(containers: list[Object]) -> None:
    for container in containers:
        names = [variable["name"] for variable in container.get("env", [])]
        assert len(names) == len(set(names))
