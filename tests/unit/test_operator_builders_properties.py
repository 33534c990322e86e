"""What holds for every GuidedModel that the API takes."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from guided_operator.api import GuidedModel, parse
from guided_operator.builders.configuration import config_file
from guided_operator.builders.pod import pod_template
from guided_operator.builders.pod_paths import Site
from guided_operator.builders.revision_key import pod_key
from support.drawn import FIELDS, MODELS
from support.manifests import changed, children_of, minimal

Object = dict[str, Any]
SITE = Site("guidedmodel:1")


def template(gm: GuidedModel) -> Object:
    return pod_template(gm, SITE)


def as_served(gm: GuidedModel) -> dict[str, Any]:
    """Return the resource as the API server stores it: every default written out."""
    return gm.model_dump(by_alias=True, exclude_none=True, exclude={"status"})


@given(FIELDS, st.integers(0, 100))
def test_what_stays_the_same_restarts_no_pod(fields: dict[str, Any], replicas: int) -> None:
    """The same input, defaults that the API server writes out, another number of replicas."""
    first, gm = (parse(changed(minimal(), **fields)) for _ in range(2))
    assert json.dumps(children_of(first, SITE)) == json.dumps(children_of(gm, SITE))

    stored = parse(json.loads(json.dumps(as_served(gm))))
    assert children_of(stored, SITE) == children_of(gm, SITE)
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
def test_no_pod_has_a_token_a_writable_root_or_a_variable_twice(gm: GuidedModel) -> None:
    """Volumes, quantities and the restricted standard are judged by tests/cluster/test_drawn.py."""
    spec = template(gm)["spec"]
    assert spec["automountServiceAccountToken"] is False
    assert spec["enableServiceLinks"] is False, "Services of a namespace set no variables"
    for container in (*spec["initContainers"], *spec["containers"]):
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        names = [variable["name"] for variable in container.get("env", [])]
        assert len(names) == len(set(names))
