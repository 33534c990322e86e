"""LoRA adapters: `spec.lora`."""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from guided_operator.api.base import ApiModel, text, unique_names
from guided_operator.api.model import Uri
from guided_operator.api.rule import Rule, rules

Rank = Literal[1, 8, 16, 32, 64, 128, 256, 320, 512]  # what vLLM has kernels for


class Adapter(ApiModel):
    """A LoRA adapter, loaded when the engine starts."""

    name: Annotated[str, text(128, pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/-]*$")] = Field(
        description='Name that clients send as "model" to use the adapter. Unique in the list.'
    )
    uri: Uri


class Lora(ApiModel):
    """LoRA adapters of the model."""

    model_config = rules(
        Rule(
            "maxCached",
            "must be at least maxActive",
            "!has(self.maxCached) || !has(self.maxActive) || self.maxCached >= self.maxActive",
        )
    )

    adapters: Annotated[list[Adapter], Field(min_length=1, max_length=256), AfterValidator(unique_names)] = (
        Field(
            description=(
                "LoRA adapters; clients see each as a model of its own. All are loaded when the engine "
                "starts. From the hub (hf://) an adapter is its repository's default branch: to pin one, "
                "serve it from a claim."
            ),
            json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
        )
    )
    max_rank: Rank = Field(
        default=16,
        description=(
            "Maximum rank of an adapter, one of the ranks that vLLM has kernels for: 1, 8, 16, 32, 64, "
            "128, 256, 320 or 512. Default: 16, as in vLLM; a larger value takes memory for every "
            "adapter."
        ),
    )
    max_active: Annotated[int, Field(ge=1, le=256)] = Field(
        default=1,
        description=(
            "Maximum number of different adapters in one batch; each takes device memory. Default: 1, as "
            "in vLLM; requests for further adapters wait for a later step."
        ),
    )
    max_cached: Annotated[int, Field(ge=1, le=1024)] | None = Field(
        default=None,
        description=(
            "Maximum number of adapters kept in CPU memory, at least maxActive; the others are read from "
            "disk again when a request needs them. Default: maxActive, as in vLLM."
        ),
    )
