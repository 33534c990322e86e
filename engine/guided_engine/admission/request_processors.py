"""A request's choice of logits processors, refused where it cannot be read or names what there is not."""

from collections.abc import Mapping, Sequence
from typing import Any

from guided_contract.config import LogitsProcessorConfig
from guided_contract.errors import ErrorCode, GuidedError
from guided_engine.admission.request_body import invalid
from guided_engine.admission.request_routes import arguments
from guided_engine.processors import choice
from guided_engine.processors.adapters import AdapterFactory
from guided_engine.processors.choice import ARGUMENT, ChoiceError
from guided_engine.processors.failures import words
from guided_engine.processors.registry import find, request_params


def chosen(
    route: str, extra_args: Mapping[str, Any] | None, processors: Sequence[LogitsProcessorConfig]
) -> list[str]:
    """Return the processors that a request gets, by name, wherever it came from.

    Raises
    ------
    GuidedError
        Its choice cannot be read, or the model has not what it names (request_invalid).
    """
    given = extra_args or {}
    try:
        names = choice.chosen(given.get(ARGUMENT), processors)
        if processors:
            configs = {config.name: config for config in processors}
            for name, asked in choice.parameters(given, names).items():
                request_params(configs[name], find(configs[name]), asked)
    except ChoiceError as error:
        raise invalid(f"{arguments(route)}.{error.key}", str(error)) from error
    return names


def validate(
    route: str, sampling_params: Any, names: Sequence[str], processors: Sequence[LogitsProcessorConfig]
) -> None:
    """Have the AdapterLogitsProcessors that a request gets judge its parameters, as vLLM does.

    Raises
    ------
    GuidedError
        One refuses them (request_invalid).
    """
    for config in processors if sampling_params is not None else ():
        factory = find(config) if config.name in names else None
        if factory is not None and issubclass(factory, AdapterFactory):
            try:
                factory.validate_params(sampling_params)
            except Exception as error:
                message = f"logits processor {config.name} refuses the request: {words(error)}"
                raise GuidedError(ErrorCode.REQUEST_INVALID, message, path=arguments(route)) from error
