"""Stateful logits processors: `spec.logitsProcessors`."""

from typing import Annotated, Any

from pydantic import Field

from guided_operator.api.base import ApiModel, text


class LogitsProcessor(ApiModel):
    """A stateful logits processor, made once per sequence by its factory."""

    name: Annotated[str, text(63, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")] = Field(
        description="What requests call it; unique in the list."
    )
    factory: Annotated[
        str,
        text(
            256,
            pattern=r"^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*:[A-Za-z_][A-Za-z0-9_]*$",
        ),
    ] = Field(description='The class that makes it, as "package.module:Class", importable in the engine.')
    params: Annotated[dict[str, Any], Field(max_length=32)] = Field(
        default={}, description="Keyword arguments of the factory, any JSON. Default: none."
    )
    apply_by_default: bool = Field(
        default=True,
        description="Whether requests that do not name it get it too. Default: true.",
    )
