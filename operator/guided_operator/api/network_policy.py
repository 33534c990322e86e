"""Who may connect to the pods: `spec.networkPolicy`."""

from typing import Annotated

from pydantic import Field

from guided_operator.api.base import ApiModel, LabelValue

Labels = Annotated[dict[str, LabelValue], Field(max_length=16)]


class NetworkPeer(ApiModel):
    """Pods that may connect."""

    namespace_labels: Labels = Field(default={})
    """Labels of the pods' namespace. Empty or not set: only this namespace. Default: none."""
    pod_labels: Labels = Field(default={})
    """Labels of the pods. Default: none, which selects all pods of the namespace."""


class NetworkPolicy(ApiModel):
    """Who may connect to the pods. Outgoing connections are not limited."""

    allow_from: Annotated[list[NetworkPeer], Field(max_length=16)] = Field(default=[NetworkPeer()])
    """Pods that may reach the API and the metrics. Default: all pods of this namespace. The operator can
    always read the sidecar's status page."""
