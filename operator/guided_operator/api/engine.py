"""The vLLM server: `spec.engine`."""

from typing import Annotated, Final

from pydantic import AfterValidator, Field

from guided_operator.api.accelerator import Accelerator
from guided_operator.api.base import ApiModel, text, unique_names
from guided_operator.api.rule import Rule, rules
from guided_operator.api.secret_refs import SecretKey

# A line break or another control character is no part of an option, and some checks end at one.
_WORD: Final = r"^[^\x00-\x1f\x7f]+$"


class EnvSource(ApiModel):
    """Source of a variable's value."""

    secret_key_ref: SecretKey = Field(description="Key of a Secret that holds the value.")


class EnvVar(ApiModel):
    """An environment variable of the engine container."""

    model_config = rules(
        Rule(
            "value",
            "exactly one of value and valueFrom must be set",
            "has(self.value) != has(self.valueFrom)",
        )
    )

    name: Annotated[str, text(128, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")] = Field(
        description=(
            "Name of the variable; none that another field sets, and none that breaks the pod's "
            "isolation. Names that begin with APP_ are free, for your own code."
        )
    )
    value: Annotated[str, text(4096, least=0)] | None = Field(
        default=None,
        description="Value of the variable. Exactly one of value and valueFrom is set. Default: none.",
    )
    value_from: EnvSource | None = Field(
        default=None,
        description="Source of the value, for tokens and other secrets. Default: none.",
    )


class Engine(ApiModel):
    """The vLLM server."""

    image: Annotated[str, text(512, pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/@-]*$")] = Field(
        description=(
            "A stock vLLM image of a supported version. `guidedmodel run` ignores it and uses the "
            "installed vLLM."
        )
    )
    version: Annotated[str, text(32, pattern=r"^[0-9]+\.[0-9]+\.[0-9]+((rc|\.?post)[0-9]+)?$")] | None = (
        Field(
            default=None,
            description=(
                "Version of vLLM in the image, where the image's tag does not show it. Default: the "
                "version in the tag of a vLLM image, else what the pods report when they start."
            ),
        )
    )
    accelerator: Accelerator = Field(
        default=Accelerator(),
        description="What the ranks run on. Default: one nvidia.com/gpu for each rank.",
    )
    api_key_secret_key_ref: SecretKey | None = Field(
        default=None,
        description=(
            "Key of a Secret that holds the API key, which clients send as Authorization: Bearer KEY; "
            "requests without it get a 401 on all routes below /v1. A changed key takes effect when pods "
            "restart. Default: none: whoever reaches the port is served."
        ),
    )
    args: Annotated[list[Annotated[str, text(2048, pattern=_WORD)]], Field(max_length=64)] = Field(
        default=[],
        description=(
            "Further arguments of vLLM's API server, one word per item: any option by its full name, but "
            "none that another field sets and none that breaks the pod's isolation. Default: none."
        ),
    )
    env: Annotated[list[EnvVar], Field(max_length=64), AfterValidator(unique_names)] = Field(
        default=[],
        description=(
            "Environment variables of the engine container. They override the operator's defaults. "
            "Default: none."
        ),
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )
