"""Adapters beside the model: `spec.lora`."""

from typing import Annotated, Final, Literal

from pydantic import AfterValidator, Field

from guided_operator.api.base import ApiModel, text, unique_names
from guided_operator.api.model import Uri, uri_rules
from guided_operator.api.rule import Rule

Rank = Literal[1, 8, 16, 32, 64, 128, 256, 320, 512]  # what vLLM has kernels for


class Adapter(ApiModel):
    """One LoRA adapter, loaded at start."""

    name: Annotated[str, text(128, pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/-]*$")] = Field(
        description='What clients send as "model" to get it; unique in the list.'
    )
    uri: Uri


class Lora(ApiModel):
    """LoRA adapters that the model is served with. Absent: none."""

    adapters: Annotated[list[Adapter], Field(min_length=1, max_length=256), AfterValidator(unique_names)] = (
        Field(
            description=(
                "The adapters, each a model of its own to clients, with guided decoding as the model itself. "
                "A pod is ready when it has loaded them; none is loaded by request."
            ),
            json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
        )
    )
    max_rank: Rank = Field(
        default=16,
        description=(
            "The largest rank of an adapter: 1, 8, 16, 32, 64, 128, 256, 320 or 512, which vLLM has kernels "
            "for. Default: 16, as in vLLM; a larger one takes memory for every adapter."
        ),
    )
    max_active: Annotated[int, Field(ge=1, le=256)] = Field(
        default=1,
        description=(
            "Adapters that one step may mix, each with its place on the device. Default: 1, as in vLLM; "
            "requests for others wait for the next step."
        ),
    )
    max_cached: Annotated[int, Field(ge=1, le=1024)] | None = Field(
        default=None,
        description=(
            "Adapters kept in the host's memory, at least maxActive. Default: maxActive, as in vLLM; all "
            "others are read from disk again when asked for."
        ),
    )


LORA_RULES: Final = (
    *uri_rules("spec", "lora", "adapters", "*"),
    Rule(
        ("spec", "lora"),
        "maxCached",
        "must be at least maxActive",
        "!has(self.maxCached) || !has(self.maxActive) || self.maxCached >= self.maxActive",
        lambda lora: lora.max_cached is not None and lora.max_cached < lora.max_active,
    ),
    Rule(
        (),
        "spec.lora.adapters",
        "an adapter may not be called as the model itself",
        "!has(self.spec.lora) || !self.spec.lora.adapters.exists(a, a.name == "
        "(has(self.spec.model.servedName) ? self.spec.model.servedName : self.metadata.name))",
        lambda gm: (
            gm.spec.lora is not None
            and any(adapter.name == gm.served_name for adapter in gm.spec.lora.adapters)
        ),
    ),
)
