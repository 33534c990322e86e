"""`guidedmodel render`: what the operator would create, for review and GitOps."""

from collections.abc import Sequence

import click
import yaml

from guided_operator.builders import Site
from guided_operator.cli.inputs import gather
from guided_operator.cli.validate import faults
from guided_operator.kube.key import Key
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
        # As one that has just been created. What has no uid yet can own nothing: no owner references.
        as_served = model.model_dump(mode="json", by_alias=True, exclude_unset=True)
        as_served["metadata"] |= {"uid": "", "generation": 1}
        seen = Observed(Key(model.namespace, model.name), as_served, sources=inputs.sources(model))
        children = plan(seen, site).children
        click.echo(yaml.safe_dump_all(children, sort_keys=False, explicit_start=True), nl=False)
    return 0
