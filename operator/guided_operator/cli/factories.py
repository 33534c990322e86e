"""What the factories of logits processors say of a manifest's parameters, where their code is installed.

This imports code that a manifest names. Only `guidedmodel validate` does, as whoever runs it; the operator
never does: a resource must not choose what code the operator runs.
"""

import contextlib
import importlib
import sys
from collections.abc import Iterator
from typing import Final

from guided_contract.config import LogitsProcessorConfig
from guided_operator.api import GuidedModel, Problem

_OURS: Final = "guided_engine."


def problems(model: GuidedModel) -> Iterator[Problem]:
    """Report unknown factories and invalid parameters.

    Only the engine's image has to have a module that is not ours: one that cannot be imported here is not
    judged.
    """
    if not model.spec.logits_processors:
        return
    try:
        registry = importlib.import_module("guided_engine.processors.registry")
    except ImportError:  # the plugin, or a library of it, is not installed
        return
    for index, processor in enumerate(model.spec.logits_processors):
        field = f"spec.logitsProcessors[{index}]"
        config = LogitsProcessorConfig(
            name=processor.name, factory=processor.factory, params=processor.params
        )
        try:
            with contextlib.redirect_stdout(sys.stderr):  # what such code says is no answer of ours
                registry.check(config)
        except registry.FactoryError as error:
            if not error.is_absent or processor.factory.startswith(_OURS):
                yield Problem(f"{field}.{error.field}", str(error))
