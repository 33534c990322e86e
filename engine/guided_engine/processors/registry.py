"""The factories that a configuration names, constructed, and which of them a request gets."""

import importlib
from collections.abc import Sequence

from guided_contract.config import LogitsProcessorConfig
from guided_engine.processors import choice
from guided_engine.processors.interface import ProcessorFactory, SequenceInfo, SequenceProcessor


class FactoryError(Exception):
    """A configured factory cannot be imported or constructed; the engine does not start."""


class Registry:
    """The configured factories, in their order.

    Raises
    ------
    FactoryError
        Module or class cannot be found, is no ProcessorFactory, or refuses its parameters.
    """

    def __init__(self, configs: Sequence[LogitsProcessorConfig]) -> None:
        self._configs = tuple(configs)
        self._factories = {config.name: _construct(config) for config in configs}

    def __bool__(self) -> bool:
        return bool(self._factories)

    def create(self, sequence: SequenceInfo) -> list[SequenceProcessor]:
        """Return the states of a new sequence, in the order in which they apply.

        Raises what a factory raises; ChoiceError for a choice that came past admission, which refuses it.
        """
        names = choice.chosen(sequence.arguments.get(choice.ARGUMENT), self._configs)
        states = (self._factories[name].create(sequence) for name in names)
        return [state for state in states if state is not None]


def _construct(config: LogitsProcessorConfig) -> ProcessorFactory:
    module, _, name = config.factory.partition(":")
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise FactoryError(
            f"logits processor {config.name!r}: cannot import {config.factory!r}: {error}"
        ) from error
    if not (isinstance(found, type) and issubclass(found, ProcessorFactory)):
        raise FactoryError(f"logits processor {config.name!r}: {config.factory!r} is not a ProcessorFactory")
    try:
        return found(**config.params)
    except Exception as error:
        raise FactoryError(
            f"logits processor {config.name!r}: {config.factory!r} refuses its parameters: {error}"
        ) from error
