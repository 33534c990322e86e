"""The factories that a configuration names, constructed, and which of them a request gets."""

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from guided_contract.config import LogitsProcessorConfig
from guided_engine.processors.interface import ProcessorFactory, SequenceInfo, SequenceProcessor

# A request's own choice, in `vllm_xargs`: names in the order of application, instead of the defaults.
CHOICE_ARG: Final = "logits_processors"


class FactoryError(Exception):
    """A configured factory cannot be imported or constructed; the engine does not start."""


@dataclass(frozen=True, slots=True)
class _Named:
    name: str
    factory: ProcessorFactory
    by_default: bool


class Registry:
    """The configured factories, in their order.

    Raises
    ------
    FactoryError
        Module or class cannot be found, is no ProcessorFactory, or refuses its parameters.
    """

    def __init__(self, configs: Sequence[LogitsProcessorConfig]) -> None:
        self._known = [_Named(c.name, _construct(c), c.apply_by_default) for c in configs]

    def __bool__(self) -> bool:
        return bool(self._known)

    def create(self, sequence: SequenceInfo) -> list[SequenceProcessor]:
        """Return the states of a new sequence; raises what a factory raises, ValueError for a wrong name."""
        factories = self._chosen(sequence)
        states = (factory.create(sequence) for factory in factories)
        return [state for state in states if state is not None]

    def _chosen(self, sequence: SequenceInfo) -> list[ProcessorFactory]:
        choice = sequence.arguments.get(CHOICE_ARG)
        if choice is None:
            return [named.factory for named in self._known if named.by_default]
        names = [part.strip() for part in choice.split(",")] if isinstance(choice, str) else list(choice)
        known = {named.name: named.factory for named in self._known}
        unknown = [name for name in names if name and name not in known]
        if unknown:
            raise ValueError(f"this model has no logits processor {', '.join(map(str, unknown))}")
        return [known[name] for name in names if name]


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
