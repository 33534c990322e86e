"""A request's choice of logits processors, refused where it cannot be read or names what there is not."""

from collections.abc import Mapping, Sequence
from typing import Any

from guided_contract.config import LogitsProcessorConfig
from guided_engine.admission.request_body import invalid
from guided_engine.admission.request_routes import arguments
from guided_engine.processors import choice
from guided_engine.processors.choice import ARGUMENT, ChoiceError
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
