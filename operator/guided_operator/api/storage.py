"""Where a pod writes: `spec.storage`."""

from typing import Annotated

from pydantic import Field

from guided_operator.api.base import ApiModel, Bytes, ObjectName, between
from guided_operator.api.quantity import amount


class Claim(ApiModel):
    """A PersistentVolumeClaim in this namespace."""

    claim_name: ObjectName = Field(description="Name of the PersistentVolumeClaim.")


class HubStorage(ApiModel):
    """Where downloads from the Hugging Face hub are kept."""

    persistent_volume_claim: Claim | None = Field(
        default=None,
        description=(
            "PersistentVolumeClaim that keeps downloads. It must be ReadWriteMany if replicas run on "
            "several nodes, and writable by the pod's user or pod.fsGroup. Default: none, each pod "
            "downloads to its node's storage."
        ),
    )


class CacheStorage(ApiModel):
    """Where compiled kernels and other results of the engine's start are kept."""

    persistent_volume_claim: Claim | None = Field(
        default=None,
        description=(
            "PersistentVolumeClaim that keeps the caches of vLLM, torch.compile, Triton, FlashInfer and "
            "CUDA. What it holds is run as code: let nobody else write to it, and only nodes share it "
            "that are alike. It must be ReadWriteMany if replicas run on several nodes, and writable by "
            "the pod's user or pod.fsGroup. Default: none, each pod compiles anew."
        ),
    )


class Storage(ApiModel):
    """Storage that a pod writes to. Its root file system is read-only."""

    hub: HubStorage = Field(
        default=HubStorage(),
        description="Downloads from the Hugging Face hub. Default: the node's storage.",
    )
    cache: CacheStorage = Field(
        default=CacheStorage(), description="Compiled kernels. Default: they go with the pod."
    )
    shared_memory: Annotated[Bytes, between("64Mi", "1Ti", amount)] | None = Field(
        default=None,
        description=(
            "Size of /dev/shm, where ranks exchange data, 64Mi to 1Ti; what is used counts as memory of "
            "the engine. Default: 1Gi plus 512Mi per rank, enough for vLLM's queues and NCCL's buffers."
        ),
    )
