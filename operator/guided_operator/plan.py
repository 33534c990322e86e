"""Step two of a pass: what there should be. Pure: the same answer for the same input."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from guided_operator import kinds, revision
from guided_operator.api import GuidedModel, ManifestError, Problem, parse
from guided_operator.builders import Children, Site, grammars, manifest, pod_key, render, url
from guided_operator.builders.grammars import Grammars
from guided_operator.kinds import Kind
from guided_operator.observe import Observed
from guided_operator.validation import check

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Plan:
    """What there should be for one GuidedModel.

    `children` are whole manifests in the order in which they are written. `problems`: why the resource
    cannot be served; then nothing is written or pruned, and what runs goes on. `surplus`: our objects
    that are no longer wanted. `grammar_faults`: what is wrong with a named grammar's text, by its name.
    """

    model: GuidedModel | None
    problems: tuple[Problem, ...] = ()
    revision: str = ""
    url: str = ""
    children: tuple[Object, ...] = ()
    surplus: tuple[tuple[Kind, str], ...] = ()
    grammar_faults: Mapping[str, str] = field(default_factory=dict)

    @property
    def desired(self) -> int:
        """How many pods there should be."""
        return self.model.spec.replicas if self.model else 0


def plan(observed: Observed, site: Site) -> Plan:
    """Decide what there should be for the GuidedModel seen."""
    try:
        model = parse(observed.model)
    except ManifestError as error:
        return Plan(None, tuple(error.problems))
    problems = tuple(check(model))
    if problems:
        return Plan(model, problems)
    key = pod_key(model)
    known = revision.stored(observed.children.get(kinds.REVISION.name, {}), observed.uid)
    rendered = render(model, site)
    merged = grammars.merge(model, observed.sources, _mounted(observed, grammars.map_name(model)))
    chosen = revision.choose(known, key, _content(rendered))
    gone = revision.expired(known, key, (pod.revision for pod in observed.pods if pod.live))
    return Plan(
        model=model,
        revision=key,
        url=url(model, site),
        children=_manifests(model, rendered, chosen, merged),
        surplus=_surplus(model.name, gone),
        grammar_faults=merged.faults,
    )


def _content(rendered: Children) -> Object:
    """Return what a revision stores of what was rendered: all that pods are made of."""
    template = manifest(rendered.deployment.spec.template)
    return {"template": template, "config": dict(rendered.config_map.data)}


def _mounted(observed: Observed, name: str) -> Mapping[str, str]:
    """Return the grammars' files that pods have now."""
    child = observed.child(kinds.CONFIG_MAP, name)
    data: Mapping[str, str] = (child or {}).get("data") or {}
    return data if child is not None and kinds.is_owned(child, observed.uid) else {}


def _manifests(
    model: GuidedModel, rendered: Children, chosen: revision.Revision, merged: Grammars
) -> tuple[Object, ...]:
    """Return every child: what pods are made of as the revision has it, the rest as rendered."""
    deployment = manifest(rendered.deployment)
    deployment["spec"]["template"] = chosen.data["template"]
    config_map = manifest(rendered.config_map)
    config_map["data"] = chosen.data["config"]
    return (
        revision.to_manifest(model, chosen),
        manifest(rendered.service_account),
        config_map,
        manifest(grammars.config_map(model, merged.data)),
        manifest(rendered.service),
        deployment,
    )


def _surplus(model: str, expired: set[str]) -> tuple[tuple[Kind, str], ...]:
    """Return what goes with the revisions that go."""
    return tuple(
        (kind, revision.name_of(model, key))
        for key in sorted(expired)
        for kind in (kinds.CONFIG_MAP, kinds.REVISION)
    )
