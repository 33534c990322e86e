"""Where a pod writes: `spec.storage`."""

from typing import Annotated, Final

from pydantic import Field

from guided_operator.api.base import ApiModel, BytesBetween, text
from guided_operator.api.rule import Rule

_CLAIM = Annotated[str, text(253, pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")]


class HubStorage(ApiModel):
    """Where downloads from the Hugging Face hub are kept."""

    claim: _CLAIM | None = Field(
        default=None,
        description=(
            "PersistentVolumeClaim in this namespace that keeps downloads, so that new pods need not "
            "download again. It must be ReadWriteMany if replicas run on several nodes, and writable by "
            "the pod's user or podTemplate.fsGroup. Default: none, each pod downloads to its node's "
            "storage."
        ),
    )
    size_limit: Annotated[str, BytesBetween("64Mi", "100Ti")] | None = Field(
        default=None,
        description=(
            "Node storage that a pod's downloads may use; the kubelet evicts a pod that exceeds it. Not "
            "allowed with claim. Default: none, no limit."
        ),
    )


class Storage(ApiModel):
    """Storage that a pod writes to. Its root file system is read-only."""

    hub: HubStorage = Field(
        default=HubStorage(),
        description="Downloads from the Hugging Face hub. Default: the node's storage, without a limit.",
    )
    shared_memory: Annotated[str, BytesBetween("64Mi", "1Ti")] | None = Field(
        default=None,
        description=(
            "Size of /dev/shm, where ranks exchange data; what is used counts as memory of the engine. "
            "Default: 1Gi plus 512Mi per rank, enough for vLLM's queues and NCCL's buffers."
        ),
    )
    temporary: Annotated[str, BytesBetween("64Mi", "10Ti")] | None = Field(
        default=None,
        description=(
            "Node storage for temporary files and caches of the engine, such as compiled kernels; the "
            "kubelet evicts a pod that exceeds it. Default: none, no limit."
        ),
    )


STORAGE_RULES: Final = (
    Rule(
        ("spec", "storage", "hub"),
        "sizeLimit",
        "must not be set together with claim, which has its own size",
        "!has(self.claim) || !has(self.sizeLimit)",
        lambda hub: hub.claim is not None and hub.size_limit is not None,
    ),
)
