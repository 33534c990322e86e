"""What the ranks run on: `spec.engine.accelerator`, and that no other field asks for accelerators."""

import itertools
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from guided_operator.api.base import ApiModel, text
from guided_operator.api.pod import NamedParts
from guided_operator.api.quantity import canonical
from guided_operator.api.rule import Rule, cel_text, matches

DEFAULT_RESOURCE: Final = "nvidia.com/gpu"
_EXTENDED: Final = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$"
# Extended resources that are accelerators. Others are not: network devices, for instance, stand in resources.
_ACCELERATORS: Final = (
    r"^(nvidia\.com/(gpu|gpu\.shared|pgpu|mig-.+)|amd\.com/.+|gpu\.intel\.com/.+|habana\.ai/.+|"
    r"google\.com/tpu|aws\.amazon\.com/neuron.*|huawei\.com/.+|.+/gpu)$"
)


class Accelerator(ApiModel):
    """What each rank runs on."""

    type: Literal["Resource", "Claims", "None"] = Field(
        default="Resource",
        description=(
            "Kind of request. Resource: an extended resource, which a device plugin offers. Claims: devices "
            "of ResourceClaims (dynamic resource allocation). None: the ranks run on the CPU. Default: "
            "Resource."
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


def _there(path: str) -> str:
    """Return CEL that is true if a field is there, with all that it is in."""
    _, *parts = itertools.accumulate(f"self.{path}".split("."), "{}.{}".format)
    return " && ".join(f"has({part})" for part in parts)


def _foreign_rule(holder: str, part: str, read: Any) -> Rule:
    """Refuse accelerators where CPU and memory stand: they would come on top of the engine's own."""
    at, own = f"{holder}.{part}", "engine.accelerator.resource"
    return Rule(
        ("spec",),
        at,
        "accelerators are set by engine.accelerator alone: remove them here, and write there what each rank "
        "gets, such as {resource: amd.com/gpu, perRank: 1}",
        f"!({_there(at)}) || self.{at}.all(k, !k.matches({cel_text(_ACCELERATORS)}) && "
        f"!({_there(own)} && k == self.{own}))",
        lambda spec: any(
            matches(_ACCELERATORS, name) or name == spec.engine.accelerator.resource
            for name in getattr(read(spec), part)
        ),
    )


_AT: Final = ("spec", "engine", "accelerator")

ACCELERATOR_RULES: Final = (
    Rule(
        _AT,
        "claims",
        "must be set if type is Claims, and must not otherwise",
        "(has(self.type) && self.type == 'Claims') == (has(self.claims) && self.claims.size() > 0)",
        lambda accelerator: (accelerator.type == "Claims") != bool(accelerator.claims),
    ),
    Rule(
        _AT,
        "type",
        "resource and perRank may be set only with type Resource: remove them, or the type",
        "!has(self.type) || self.type == 'Resource' || !(has(self.resource) || has(self.perRank))",
        lambda accelerator: (
            accelerator.type != "Resource"
            and not (accelerator.resource is None and accelerator.per_rank is None)
        ),
    ),
    *(
        _foreign_rule(holder, part, read)
        for holder, read in (
            ("resources", lambda spec: spec.resources),
            ("sidecar.resources", lambda spec: spec.sidecar.resources),
        )
        for part in ("requests", "limits")
    ),
)
