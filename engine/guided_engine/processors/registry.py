"""The factories that a configuration names: found, given their parameters, and made on a rank."""

import dataclasses
import functools
import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from guided_contract.config import LogitsProcessorConfig
from guided_engine.processors import choice
from guided_engine.processors.adapters import UnsuitableError, factory_of
from guided_engine.processors.choice import ChoiceError
from guided_engine.processors.failures import PASSED_ON, log_failure, said, words
from guided_engine.processors.interface import (
    Context,
    Params,
    ProcessorFactory,
    SequenceInfo,
    SequenceProcessor,
)


class FactoryError(Exception):
    """A configured factory cannot be found or made, or refuses its parameters; the message names it."""

    def __init__(self, config: LogitsProcessorConfig, why: str) -> None:
        super().__init__(f"logits processor {config.name!r}: {why}")


class ProcessorError(Exception):
    """A sequence's processor raised, or gave what cannot be applied; the sequence ends.

    `processors` is its name; of several that cannot be told apart all names, none of a choice not met.
    """

    def __init__(self, processors: Sequence[str], why: BaseException) -> None:
        super().__init__(f"{', '.join(processors) or 'a processor'}: {said(why)}")
        self.processors = tuple(processors)


class Running(NamedTuple):
    """A sequence's processor, with the resource's name for it and what made it."""

    name: str
    factory: ProcessorFactory[Any]
    processor: SequenceProcessor


def find(config: LogitsProcessorConfig) -> type[ProcessorFactory[Any]]:
    """Import the class of a configured factory, or make the one for what users have from vLLM."""
    try:
        return _imported(config.factory)
    except UnsuitableError as error:
        raise FactoryError(config, f"{config.factory!r} {error}") from error
    except Exception as error:
        raise FactoryError(config, f"cannot import {config.factory!r}: {error}") from error


@functools.cache  # requests in the API server ask for it, too
def _imported(place: str) -> type[ProcessorFactory[Any]]:
    module, _, name = place.partition(":")
    imported = importlib.import_module(module)
    if not hasattr(imported, name):
        raise UnsuitableError(f"does not exist: {module} has no {name}")
    return factory_of(getattr(imported, name))


def _params_of(config: LogitsProcessorConfig, factory: type[ProcessorFactory[Any]]) -> Params:
    try:
        return _read(factory, config.params)
    except Exception as error:
        raise FactoryError(config, f"{config.factory!r} refuses its parameters: {error}") from error


def request_params(
    config: LogitsProcessorConfig, factory: type[ProcessorFactory[Any]], asked: Mapping[str, Any]
) -> Params:
    """Return its parameters with those that a request sets.

    Raises ChoiceError if a request may not set one of them, or the factory refuses them.
    """
    mine = sorted(factory.request_params) if not config.enforced else []
    types = {field.name: field.type for field in msgspec.structs.fields(factory.Params)}
    wanted = {}
    for name, value in asked.items():
        if name not in mine:
            may = f"of {config.name} a request may set {', '.join(mine) or 'nothing'}"
            raise ChoiceError(f"it cannot be set by a request; {may}", f"{config.name}.{name}")
        try:
            # vLLM's type of vllm_xargs has neither booleans nor null: true is 1 there, "null" stands for it.
            wanted[name] = msgspec.convert(value, types[name], strict=False)
        except Exception as error:
            raise _refused(config, name, error) from error
    try:
        return _read(factory, {**config.params, **wanted})
    except Exception as error:
        # vllm_xargs has no place for the whole of them: the first that the request set is named.
        raise _refused(config, next(iter(asked)), error) from error


def _refused(config: LogitsProcessorConfig, name: str, error: Exception) -> ChoiceError:
    why = words(error).partition(" - at ")[0]
    return ChoiceError(f"{config.name} refuses it: {why}", f"{config.name}.{name}")


def _read(factory: type[ProcessorFactory[Any]], params: Mapping[str, Any]) -> Params:
    read: Params = msgspec.convert(dict(params), factory.Params)
    factory.check(read)
    return read


def check(config: LogitsProcessorConfig) -> type[ProcessorFactory[Any]]:
    """Find a configured factory and have it check its parameters; raises FactoryError, and makes none."""
    factory = find(config)
    _params_of(config, factory)
    return factory


class Registry:
    """The configured factories, made for this rank, in their order; `find` returns the class of one.

    Raises FactoryError if one cannot be found or made, or refuses its parameters.
    """

    def __init__(
        self,
        configs: Sequence[LogitsProcessorConfig],
        context: Context,
        find: Callable[[LogitsProcessorConfig], type[ProcessorFactory[Any]]] = find,
    ) -> None:
        self._configs = {config.name: config for config in configs}
        self._factories: dict[str, ProcessorFactory[Any]] = {}
        try:
            for config in configs:
                factory = find(config)
                params = _params_of(config, factory)
                try:
                    self._factories[config.name] = factory(params, context)
                except Exception as error:
                    raise FactoryError(config, f"{config.factory!r} failed to initialize: {error}") from error
        except FactoryError:
            self.close()
            raise

    def __bool__(self) -> bool:
        return bool(self._factories)

    def create(self, arguments: Mapping[str, Any], info: SequenceInfo[Params]) -> Iterator[Running]:
        """Make the processors of a new sequence, one after another, in the order in which they apply.

        `arguments` are the request's `vllm_xargs`; `info` gets its params here. Raises ProcessorError if a
        factory raised, ChoiceError for a choice that came past admission.
        """
        names = choice.chosen(arguments.get(choice.ARGUMENT), [*self._configs.values()])
        asked = choice.parameters(arguments, names)
        for name in names:
            factory = self._factories[name]
            own = factory.params
            if name in asked:
                own = request_params(self._configs[name], type(factory), asked[name])
            try:
                processor = factory.create(dataclasses.replace(info, params=own))
            except PASSED_ON:
                raise
            except BaseException as error:
                raise ProcessorError((name,), error) from error
            if processor is not None:
                yield Running(name, factory, processor)

    def close(self) -> None:
        """Close the factories."""
        for name, factory in self._factories.items():
            try:
                factory.close()
            except PASSED_ON:
                raise
            except BaseException as error:  # noqa: BLE001 - the user's code; the others are closed
                log_failure(f"logits processor {name} failed to close", error)
