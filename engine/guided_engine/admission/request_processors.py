"""A request's choice of logits processors, refused where it cannot be read or names what there is not."""

from collections.abc import Mapping, Sequence
from typing import Any

from guided_contract.config import LogitsProcessorConfig
from guided_contract.errors import ErrorCode, GuidedError
from guided_engine.admission.request_body import Keys, at, keys_of, value_of
from guided_engine.admission.request_fault import Fault
from guided_engine.admission.request_routes import ARGUMENTS, ROUTES
from guided_engine.processors import choice
from guided_engine.processors.adapters import AdapterFactory
from guided_engine.processors.choice import ARGUMENT, ChoiceError
from guided_engine.processors.failures import words
from guided_engine.processors.registry import find, request_params


def fault(route: str, keys: Keys, processors: Sequence[LogitsProcessorConfig]) -> Fault | None:
    """Return what is wrong with the choice in a body, or with the parameters that it sets.

    None: nothing is, or the body is no JSON of a route.

    Asked before vLLM reads the body, which takes or refuses a value of a wrong type in words of its own.
    """
    if route not in ROUTES:
        return None
    at_arguments = _arguments(route)
    elsewhere = f"{ARGUMENTS}.{ARGUMENT}"
    if at_arguments != ARGUMENTS and bytes(at(keys, elsewhere)) != b"null":
        message = f"it has no effect here; write it in {at_arguments}"
        return Fault(elsewhere, message, code=ErrorCode.REQUEST_INVALID)
    given = keys_of(at(keys, at_arguments)) or {}
    ours = {key: value_of(text) for key, text in given.items() if key == ARGUMENT or "." in key}
    try:
        _checked(ours, processors)
    except ChoiceError as error:
        return Fault(f"{at_arguments}.{error.key}", str(error), code=ErrorCode.REQUEST_INVALID)
    return None


def chosen(
    route: str, extra_args: Mapping[str, Any] | None, processors: Sequence[LogitsProcessorConfig]
) -> list[str]:
    """Return the processors that a request gets, by name, wherever it came from.

    Raises
    ------
    GuidedError
        Its choice cannot be read, or the model has not what it names (request_invalid).
    """
    try:
        return _checked(extra_args or {}, processors)
    except ChoiceError as error:
        path = f"{_arguments(route)}.{error.key}"
        raise Fault(path, str(error), code=ErrorCode.REQUEST_INVALID).error from error


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
                raise GuidedError(ErrorCode.REQUEST_INVALID, message, path=_arguments(route)) from error


def _checked(arguments: Mapping[str, Any], processors: Sequence[LogitsProcessorConfig]) -> list[str]:
    names = choice.chosen(arguments.get(ARGUMENT), processors)
    if processors:
        configs = {config.name: config for config in processors}
        for name, asked in choice.parameters(arguments, names).items():
            request_params(configs[name], find(configs[name]), asked)
    return names


def _arguments(route: str) -> str:
    known = ROUTES.get(route)
    return known.arguments if known else ARGUMENTS
