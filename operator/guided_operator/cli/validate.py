"""`guidedmodel validate`: every rule of the API server and of the operator, without them."""

from collections.abc import Iterator, Sequence

import click

from guided_operator.api import GuidedModel, Problem
from guided_operator.api.combinations import facts_of, remarks
from guided_operator.builders.grammars import merge
from guided_operator.cli.inputs import Fault, Inputs, gather
from guided_operator.cli.rules import broken_rules
from guided_operator.policy.spec_checks import check


def main(files: Sequence[str]) -> int:
    """Name every valid model on stdout; what to know of it, and faults, on stderr; 2 if there is a fault."""
    inputs = gather(files)
    found = faults(inputs)
    unfit = {fault.where for fault in found}
    for where, model in inputs.models:
        if where not in unfit:
            click.echo(f"{where}: GuidedModel {model.namespace}/{model.name} is valid")
            for remark in remarks(facts_of(model.spec)):
                click.echo(f"{where}: {remark}", err=True)
    for fault in found:
        click.echo(fault, err=True)
    return 2 if found else 0


def faults(inputs: Inputs) -> list[Fault]:
    """Return all that is wrong with what was read, where the operator has no limits of its own."""

    def texts_missing(model: GuidedModel) -> Iterator[Problem]:
        """Find grammars without a text in the ConfigMaps given; others may be in the cluster."""
        sources = inputs.sources(model)
        wrong = merge(model, sources, {}).faults
        for index, grammar in enumerate(model.spec.guided_decoding.grammars):
            if grammar.name in wrong and grammar.config_map_key_ref.name in sources:
                field = f"spec.guidedDecoding.grammars[{index}].configMapKeyRef"
                yield Problem(field, wrong[grammar.name])

    return inputs.judged(broken_rules, check, texts_missing)
