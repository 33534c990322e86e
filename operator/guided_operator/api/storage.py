"""Where a pod writes: `spec.storage`."""

from typing import Annotated, Final

from pydantic import Field

from guided_operator.api.base import ApiModel, BytesBetween, text
from guided_operator.api.rule import Rule

_CLAIM = Annotated[str, text(253, pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")]


class HubStorage(ApiModel):
    """Where what is downloaded from the hub is kept."""

    claim: _CLAIM | None = Field(
        default=None,
        description=(
            "A PersistentVolumeClaim of this namespace that keeps downloads, so that a new pod finds them: "
            "ReadWriteMany with replicas on several nodes, and writable by the pod's user or podTemplate."
            "fsGroup. Default: none, each pod downloads for itself into its node's storage."
        ),
    )
    size_limit: Annotated[str, BytesBetween("64Mi", "100Ti")] | None = Field(
        default=None,
        description=(
            "Node storage that a pod's downloads may take; past it the kubelet evicts the pod. Not with "
            "claim. Default: none, what the node has."
        ),
    )


class Storage(ApiModel):
    """Where a pod writes; its root file system is read-only."""

    hub: HubStorage = Field(
        default=HubStorage(),
        description="Downloads from the hub. Default: the node's storage, without a limit.",
    )
    shared_memory: Annotated[str, BytesBetween("64Mi", "1Ti")] | None = Field(
        default=None,
        description=(
            "Size of /dev/shm, where ranks exchange data; what is used counts as memory of the engine. "
            "Default: 1Gi and 512Mi for each rank, enough for vLLM's queues and NCCL's buffers."
        ),
    )
    temporary: Annotated[str, BytesBetween("64Mi", "10Ti")] | None = Field(
        default=None,
        description=(
            "Node storage that temporary files and caches of the engine may take, such as compiled kernels; "
            "past it the kubelet evicts the pod. Default: none, what the node has."
        ),
    )


STORAGE_RULES: Final = (
    Rule(
        ("spec", "storage", "hub"),
        "sizeLimit",
        "a claim has its own size: set either claim or sizeLimit",
        "!has(self.claim) || !has(self.sizeLimit)",
        lambda hub: hub.claim is not None and hub.size_limit is not None,
    ),
)
