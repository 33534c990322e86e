"""ResourceClaims of a pod, as in a pod: devices by dynamic resource allocation (Kubernetes 1.34)."""

from typing import Annotated

from pydantic import AfterValidator, Field

from guided_operator.api.base import ApiModel, ObjectName, text, unique_names
from guided_operator.api.rule import Rule


class PodResourceClaim(ApiModel):
    """A ResourceClaim of the pods. Exactly one of resourceClaimTemplateName and resourceClaimName is set."""

    name: Annotated[str, text(63, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")] = Field(
        description="Name of the claim in the pod. Unique in the list."
    )
    resource_claim_template_name: ObjectName | None = Field(
        default=None,
        description=(
            "ResourceClaimTemplate in this namespace, from which each pod gets a claim of its own. Default: "
            "none."
        ),
    )
    resource_claim_name: ObjectName | None = Field(
        default=None,
        description="ResourceClaim in this namespace, which all pods share. Default: none.",
    )


ResourceClaims = Annotated[list[PodResourceClaim], Field(max_length=16), AfterValidator(unique_names)]


def claim_rules(at: tuple[str, ...]) -> tuple[Rule, ...]:
    """Return the rules of the claims in a list of them."""
    return (
        Rule(
            (*at, "*"),
            "",
            "exactly one of resourceClaimTemplateName and resourceClaimName must be set",
            "has(self.resourceClaimTemplateName) != has(self.resourceClaimName)",
            lambda claim: (claim.resource_claim_template_name is None) == (claim.resource_claim_name is None),
        ),
    )
