"""What the ranks run on: `spec.engine.accelerator`."""

from typing import Annotated, Final, Literal

from pydantic import Field

from guided_operator.api.base import ApiModel, text
from guided_operator.api.pod import NamedParts
from guided_operator.api.quantity import canonical
from guided_operator.api.rule import Rule, rules

DEFAULT_RESOURCE: Final = "nvidia.com/gpu"
_EXTENDED: Final = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$"


class Accelerator(ApiModel):
    """What each rank runs on."""

    model_config = rules(
        Rule(
            "claims",
            "must be set if type is Claims, and must not otherwise",
            "(has(self.type) && self.type == 'Claims') == (has(self.claims) && self.claims.size() > 0)",
        ),
        Rule(
            "type",
            "resource and perRank may be set only with type Resource: remove them, or the type",
            "!has(self.type) || self.type == 'Resource' || !(has(self.resource) || has(self.perRank))",
        ),
    )

    type: Literal["Resource", "Claims", "None"] = Field(
        default="Resource",
        description=(
            "Kind of request. Resource: an extended resource of a device plugin. Claims: devices of "
            "ResourceClaims. None: the ranks run on the CPU. Default: Resource."
        ),
    )
    resource: Annotated[str, text(317, pattern=_EXTENDED)] | None = Field(
        default=None,
        description=(
            "Name of the extended resource, such as amd.com/gpu or nvidia.com/mig-3g.40gb. Only with type "
            f"Resource. Default: {DEFAULT_RESOURCE}."
        ),
    )
    per_rank: Annotated[int, Field(ge=1, le=64)] | None = Field(
        default=None,
        description=(
            "How many of the resource each rank gets; a pod has tensor times pipeline times data ranks, "
            "divided by nodes. Only with type Resource. Default: 1."
        ),
    )
    claims: NamedParts = Field(
        default=[],
        description=(
            "As resourceClaims in a pod: kubectl explain pod.spec.resourceClaims. They have a device for "
            "each of the pod's ranks. Only with type Claims. Default: none."
        ),
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )

    def resource_of(self, ranks: int) -> dict[str, str]:
        """Return the extended resource that so many ranks ask for, if any."""
        if self.type != "Resource":
            return {}
        return {self.resource or DEFAULT_RESOURCE: canonical(str((self.per_rank or 1) * ranks))}
