"""What containers get of CPU and memory, and where they write: `spec.resources`, `sidecar` and `storage`."""

from typing import Annotated

from pydantic import Field

from guided_operator.api.base import ApiModel, Bytes, ObjectName, Quantity, between
from guided_operator.api.quantity import amount

Amounts = Annotated[dict[str, Quantity], Field(max_length=16)]


class Resources(ApiModel):
    """Compute resources of a container, as in a pod."""

    requests: Amounts = Field(default={})
    """Amounts that the scheduler reserves. Default: depends on the container."""
    limits: Amounts = Field(default={})
    """Maximum amounts. Default: see the parent field."""


class Sidecar(ApiModel):
    """The sidecar container: grammar workers, telemetry and health."""

    resources: Resources = Resources()
    """Resources of the sidecar container. Default for each value that is not set: requests of 100m CPU and
    512Mi memory, and a memory limit of 4Gi."""


class Claim(ApiModel):
    """A PersistentVolumeClaim in this namespace."""

    claim_name: ObjectName
    """Name of the PersistentVolumeClaim."""


class HubStorage(ApiModel):
    """Where downloads from the Hugging Face hub are kept."""

    persistent_volume_claim: Claim | None = None
    """PersistentVolumeClaim for downloads. It must be ReadWriteMany if replicas run on several nodes, and
    writable by the pod's user or pod.fsGroup. Default: none, each pod downloads to its node's storage."""


class CacheStorage(ApiModel):
    """Where compiled kernels and other results of the engine's start are kept."""

    persistent_volume_claim: Claim | None = None
    """PersistentVolumeClaim for the caches of vLLM, torch.compile, Triton, FlashInfer and CUDA. The engine
    runs its contents as code: nobody else may write to it, and all nodes that use it must be alike. Access
    mode and owner as for storage.hub. Default: none, each pod compiles again."""


class Storage(ApiModel):
    """Storage that a pod writes to. Its root file system is read-only."""

    hub: HubStorage = HubStorage()
    """Downloads from the Hugging Face Hub."""
    cache: CacheStorage = CacheStorage()
    """Compiled kernels."""
    shared_memory: Annotated[Bytes, between("64Mi", "1Ti", amount)] | None = None
    """Size of /dev/shm, which ranks use to exchange data, 64Mi to 1Ti. Used space counts as memory of the
    engine container. Default: 1Gi plus 512Mi per rank."""
