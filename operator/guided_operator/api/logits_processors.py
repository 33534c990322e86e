"""Stateful logits processors: `spec.logitsProcessors`."""

from typing import Annotated, Any

from pydantic import Field

from guided_operator.api.base import ApiModel, text


class LogitsProcessor(ApiModel):
    """A stateful logits processor; its factory makes one per sequence."""

    name: Annotated[str, text(63, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")] = Field(
        description="Name that requests use. Unique in the list."
    )
    factory: Annotated[
        str,
        text(
            256,
            pattern=r"^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*:[A-Za-z_][A-Za-z0-9_]*$",
        ),
    ] = Field(
        description=(
            'Class that makes the processor, as "package.module:Class". It must be importable in the '
            "engine container."
        )
    )
    params: Annotated[dict[str, Any], Field(max_length=32)] = Field(
        default={}, description="Keyword arguments for the factory, any JSON. Default: none."
    )
    apply_by_default: bool = Field(
        default=True,
        description="Whether the processor also runs for requests that do not name it. Default: true.",
    )
