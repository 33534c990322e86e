"""The vLLM server, and what its ranks run on: `spec.engine`."""

import re
from typing import Annotated, Final, Literal

from pydantic import Field

from guided_operator.api.base import ApiModel, ByName, SecretKey, text
from guided_operator.api.pod import NamedParts
from guided_operator.api.quantity import canonical
from guided_operator.api.rule import Rule, rules

DEFAULT_RESOURCE: Final = "nvidia.com/gpu"
_EXTENDED: Final = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$"
# A line break or another control character is no part of an option, and some checks end at one.
_WORD: Final = r"^[^\x00-\x1f\x7f]+$"


class EnvSource(ApiModel):
    """Source of a variable's value."""

    secret_key_ref: SecretKey
    """Key of a Secret that holds the value."""


class EnvVar(ApiModel):
    """An environment variable of the engine container."""

    model_config = rules(
        Rule(
            "value",
            "exactly one of value and valueFrom must be set",
            "has(self.value) != has(self.valueFrom)",
        )
    )

    name: Annotated[str, text(128, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
    """Name of the variable. A name that another field sets, or that would break the pod's isolation, is
    refused. Names that begin with APP_ are free for your own code."""
    value: Annotated[str, text(4096, least=0)] | None = None
    """Value of the variable. Set exactly one of value and valueFrom. Default: none."""
    value_from: EnvSource | None = None
    """Source of the value, for tokens and other secrets. Default: none."""


# vLLM's own images, and copies that keep the name, have the version as tag; other tags say nothing.
_VERSIONED_VLLM: Final = re.compile(
    r"(?:^|/)vllm[^/:@]*:v?([0-9]+\.[0-9]+\.[0-9]+(?:\.?(?:rc|post)[0-9]+)?)(?![0-9A-Za-z.]|-rc|-dev)"
)


class Accelerator(ApiModel):
    """What each rank runs on."""

    model_config = rules(
        Rule(
            "claims",
            "must be set if, and only if, type is Claims",
            "(has(self.type) && self.type == 'Claims') == (has(self.claims) && self.claims.size() > 0)",
        ),
        Rule(
            "type",
            "must be Resource if resource or perRank is set: remove them, or set type to Resource",
            "!has(self.type) || self.type == 'Resource' || !(has(self.resource) || has(self.perRank))",
        ),
    )

    type: Literal["Resource", "Claims", "None"] = "Resource"
    """How devices are requested. Resource: as an extended resource of a device plugin. Claims: by
    ResourceClaims. None: no device, the ranks run on the CPU. Default: Resource."""
    resource: Annotated[str, text(317, pattern=_EXTENDED)] | None = None
    """Name of the extended resource, such as amd.com/gpu or nvidia.com/mig-3g.40gb. Allowed only with type
    Resource. Default: nvidia.com/gpu."""
    per_rank: Annotated[int, Field(ge=1, le=64)] | None = None
    """Number of devices per rank. A pod has tensor * pipeline * data / nodes ranks. Allowed only with type
    Resource. Default: 1."""
    claims: NamedParts = Field(default=[])
    """Same as pod.spec.resourceClaims. The claims must provide one device for each rank of the pod. Allowed
    only with type Claims. Default: none."""

    def resource_of(self, ranks: int) -> dict[str, str]:
        """Return the extended resource that so many ranks ask for, if any."""
        if self.type != "Resource":
            return {}
        return {self.resource or DEFAULT_RESOURCE: canonical(str((self.per_rank or 1) * ranks))}


class Engine(ApiModel):
    """The vLLM server."""

    image: Annotated[str, text(512, pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/@-]*$")]
    """Stock vLLM image of a supported version. `guidedmodel run` ignores it and uses the installed vLLM."""
    version: Annotated[str, text(32, pattern=r"^[0-9]+\.[0-9]+\.[0-9]+((rc|\.?post)[0-9]+)?$")] | None = None
    """Version of vLLM in the image, if the image tag does not show it. Default: the version in the tag of a
    vLLM image, else the version that the pods report when they start."""
    accelerator: Accelerator = Accelerator()
    """Devices of the ranks. Default: one nvidia.com/gpu per rank."""
    api_key_secret_key_ref: SecretKey | None = None
    """Key of a Secret that holds the API key, which clients send as Authorization: Bearer KEY. A request
    below /v1 without it gets a 401. Pods read a changed key when they restart. Default: none, no
    authentication."""
    args: Annotated[list[Annotated[str, text(2048, pattern=_WORD)]], Field(max_length=64)] = Field(default=[])
    """Additional arguments of vLLM's API server, one word per item. Options are written with their full name.
    An option that another field sets, or that would break the pod's isolation, is refused. Default: none."""
    env: Annotated[ByName[EnvVar], Field(max_length=64)] = Field(default=[])
    """Environment variables of the engine container. They override the operator's defaults. Default: none."""

    @property
    def tagged_version(self) -> str | None:
        """Return the version of vLLM that the image's tag tells, if it does."""
        found = _VERSIONED_VLLM.search(self.image)
        return found[1] if found else None

    @property
    def vllm_version(self) -> str | None:
        """Return the version of vLLM in the image, as far as the spec says it."""
        return self.version or self.tagged_version
