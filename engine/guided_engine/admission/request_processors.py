"""A request's choice of logits processors, refused where it cannot be read or names what there is not."""

from collections.abc import Mapping, Sequence
from typing import Any

from guided_contract.config import LogitsProcessorConfig
from guided_engine.admission.request_body import invalid
from guided_engine.admission.request_routes import arguments
from guided_engine.processors import choice
from guided_engine.processors.choice import ARGUMENT, ChoiceError
from guided_engine.processors.failures import words
from guided_engine.processors.registry import find, request_params


def chosen(
    route: str,
    extra_args: Mapping[str, Any] | None,
    processors: Sequence[LogitsProcessorConfig],
    sampling_params: Any = None,
) -> list[str]:
    """Return the processors that a request gets, by name, wherever it came from.

    An AdapterLogitsProcessor judges the request's `sampling_params`, as vLLM has it do.

    Raises
    ------
    GuidedError
        Its choice cannot be read, the model has not what it names, or one refuses it (request_invalid).
    """
    given = extra_args or {}
    configs = {config.name: config for config in processors}
    try:
        names = choice.chosen(given.get(ARGUMENT), processors)
        if processors:
            for name, asked in choice.parameters(given, names).items():
                request_params(configs[name], find(configs[name]), asked)
    except ChoiceError as error:
        raise invalid(f"{arguments(route)}.{error.key}", str(error)) from error
    for name in names if sampling_params is not None else ():
        validate = getattr(find(configs[name]), "validate_params", None)
        try:
            if validate is not None:
                validate(sampling_params)
        except Exception as error:
            message = f"logits processor {name} refuses the request: {words(error)}"
            raise invalid(arguments(route), message) from error
    return names
