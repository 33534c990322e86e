"""`guidedmodel render`: what the operator would create, for review and GitOps."""

from collections.abc import Sequence
from typing import Any

import click
import yaml

from guided_operator.api import GuidedModel
from guided_operator.builders.grammars import Sources
from guided_operator.builders.pod_paths import Site
from guided_operator.cli.inputs import gather
from guided_operator.cli.validate import faults
from guided_operator.kube.key import Key
from guided_operator.policy.installation_limits import NO_LIMITS, Limits
from guided_operator.reconcile.observe import Observed
from guided_operator.reconcile.plan import plan


def main(files: Sequence[str], plugin_image: str) -> int:
    """Print the children of every model, in the order in which they are created; 2 if one has a fault."""
    inputs = gather(files)
    if found := faults(inputs):
        for fault in found:
            click.echo(fault, err=True)
        return 2
    site = Site(plugin_image)
    for _, model in inputs.models:
        children = rendered(model, site, inputs.sources(model))
        click.echo(yaml.safe_dump_all(children, sort_keys=False, explicit_start=True), nl=False)
    return 0


def rendered(
    model: GuidedModel, site: Site, sources: Sources, limits: Limits = NO_LIMITS
) -> list[dict[str, Any]]:
    """Return what the operator would make of a model that has just been created.

    By the operator's own plan. What has no uid yet can own nothing: the children have no owner references.
    """
    as_served = model.model_dump(mode="json", by_alias=True, exclude_unset=True)
    as_served["metadata"] |= {"uid": "", "generation": 1}
    seen = Observed(Key(model.namespace, model.name), as_served, sources=sources)
    return list(plan(seen, site, limits).children)
