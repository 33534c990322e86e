"""The volumes of a pod, and where each container sees them. The root file system is read-only."""

from pathlib import PurePosixPath
from typing import Final

from kubernetes.aio import client as k8s

from guided_operator.api import GuidedModel, words
from guided_operator.api.quantity import canonical
from guided_operator.api.resources import Claim
from guided_operator.builders.grammars import map_name
from guided_operator.builders.own_parts import OWN
from guided_operator.builders.pod_paths import Site
from guided_operator.builders.source import claims, compile_cache, downloads

_RUN: Final = "run"
_CONFIG: Final = "config"
_GRAMMARS: Final = "grammars"
_PLUGIN: Final = "plugin"
_SHM: Final = "shm"
_ENGINE_TMP: Final = "engine-tmp"
_SIDECAR_TMP: Final = "sidecar-tmp"
_HUB: Final = "hub"
_CACHE: Final = "cache"

# Compiled grammars live there, up to 22 MB each; what is really used counts against the containers' memory.
_RUN_LIMIT: Final = "1Gi"


def shm_limit(ranks: int) -> str:
    """Return the size of /dev/shm: vLLM's message queues (16 MiB x 10 chunks per rank) and NCCL's buffers."""
    return canonical(f"{1024 + 512 * ranks}Mi")


def volumes(gm: GuidedModel, site: Site, config_map: str) -> list[k8s.V1Volume]:
    """Return the pod's volumes."""
    found = [
        k8s.V1Volume(name=_RUN, empty_dir=_memory(_RUN_LIMIT)),
        k8s.V1Volume(name=_CONFIG, config_map=k8s.V1ConfigMapVolumeSource(name=config_map)),
        # In every pod, and as a whole: the kubelet brings changes to no other kind of mount.
        k8s.V1Volume(name=_GRAMMARS, config_map=k8s.V1ConfigMapVolumeSource(name=map_name(gm.name))),
        k8s.V1Volume(name=_SHM, empty_dir=_memory(_shm_limit(gm))),
        k8s.V1Volume(name=_ENGINE_TMP, empty_dir=k8s.V1EmptyDirVolumeSource()),
        k8s.V1Volume(name=_SIDECAR_TMP, empty_dir=k8s.V1EmptyDirVolumeSource()),
    ]
    if site.plugin_dir:
        found.append(k8s.V1Volume(name=_PLUGIN, empty_dir=k8s.V1EmptyDirVolumeSource()))
    if _downloads(gm, site):
        found.append(_hub_volume(gm))
    if (cache := compile_cache(gm, site)) is not None:
        found.append(_claimed(_CACHE, cache))
    for claim in claims(gm):
        source = k8s.V1PersistentVolumeClaimVolumeSource(claim_name=claim, read_only=True)
        found.append(k8s.V1Volume(name=_claim_volume(gm, claim), persistent_volume_claim=source))
    return found


def on_node(made: list[k8s.V1Volume]) -> str:
    """Return our own folders on the node's disk, with commas; users' own are theirs to declare."""
    folders = (one for one in made if one.empty_dir is not None and one.empty_dir.medium != "Memory")
    return ",".join(one.name for one in folders)


def engine_mounts(gm: GuidedModel, site: Site) -> list[k8s.V1VolumeMount]:
    """Return what the engine container sees."""
    shm = k8s.V1VolumeMount(name=_SHM, mount_path="/dev/shm")  # noqa: S108 - an emptyDir of the pod's own
    own = [_own_mount(site, volume["name"]) for volume in gm.spec.pod.volumes]
    if compile_cache(gm, site) is not None:
        own.append(k8s.V1VolumeMount(name=_CACHE, mount_path=site.cache))
    return [*_shared_mounts(gm, site), shm, *own, *_home_mounts(site, _ENGINE_TMP)]


def sidecar_mounts(gm: GuidedModel, site: Site) -> list[k8s.V1VolumeMount]:
    """Return what the sidecar sees: for the tokenizer the model, or whom to trust on the way to the hub."""
    grammars = k8s.V1VolumeMount(name=_GRAMMARS, mount_path=site.named_grammars, read_only=True)
    trust = [_own_mount(site, name, read_only=True) for name in _trusted(gm, site)]
    return [*_shared_mounts(gm, site), grammars, *trust, *_home_mounts(site, _SIDECAR_TMP)]


def plugin_mounts(site: Site) -> list[k8s.V1VolumeMount]:
    """Return what the copying container sees: the folder it fills."""
    return [k8s.V1VolumeMount(name=_PLUGIN, mount_path=site.plugin_dir)]


def _shared_mounts(gm: GuidedModel, site: Site) -> list[k8s.V1VolumeMount]:
    folder = str(PurePosixPath(site.config_path).parent)
    mounts = [
        k8s.V1VolumeMount(name=_RUN, mount_path=site.run_dir),
        k8s.V1VolumeMount(name=_CONFIG, mount_path=folder, read_only=True),
    ]
    if site.plugin_dir:
        mounts.append(k8s.V1VolumeMount(name=_PLUGIN, mount_path=site.plugin_dir, read_only=True))
    if _downloads(gm, site):
        mounts.append(k8s.V1VolumeMount(name=_HUB, mount_path=site.hub))
    for claim in claims(gm):
        name = _claim_volume(gm, claim)
        mounts.append(k8s.V1VolumeMount(name=name, mount_path=site.models(claim), read_only=True))
    return mounts


def _home_mounts(site: Site, volume: str) -> list[k8s.V1VolumeMount]:
    return [k8s.V1VolumeMount(name=volume, mount_path=site.home)] if site.home else []


def _claim_volume(gm: GuidedModel, claim: str) -> str:
    # A volume's name has at most 63 characters and no dots; a claim's may have 253 and some.
    return f"model-{claims(gm).index(claim)}"


def _downloads(gm: GuidedModel, site: Site) -> bool:
    return bool(site.hub) and downloads(gm)


def _shm_limit(gm: GuidedModel) -> str:
    own = gm.spec.storage.shared_memory
    return canonical(own) if own is not None else shm_limit(gm.spec.parallelism.ranks)


def _hub_volume(gm: GuidedModel) -> k8s.V1Volume:
    claim = gm.spec.storage.hub.persistent_volume_claim
    if claim is None:
        return k8s.V1Volume(name=_HUB, empty_dir=k8s.V1EmptyDirVolumeSource())
    return _claimed(_HUB, claim)


def _claimed(name: str, claim: Claim) -> k8s.V1Volume:
    source = k8s.V1PersistentVolumeClaimVolumeSource(claim_name=claim.claim_name)
    return k8s.V1Volume(name=name, persistent_volume_claim=source)


def _own_mount(site: Site, name: str, *, read_only: bool | None = None) -> k8s.V1VolumeMount:
    return k8s.V1VolumeMount(
        name=f"{OWN}{name}", mount_path=f"{site.own_volumes}/{name}", read_only=read_only
    )


def _trusted(gm: GuidedModel, site: Site) -> list[str]:
    """Return the names of the user's volumes that variables of the way to hub and collector point into."""
    files = [
        PurePosixPath(variable.value or "")
        for variable in gm.spec.engine.env
        if variable.name in (*words.WAY_TO_THE_HUB, *words.TELEMETRY)
    ]
    return [
        volume["name"]
        for volume in gm.spec.pod.volumes
        if any(file.is_relative_to(f"{site.own_volumes}/{volume['name']}") for file in files)
    ]


def _memory(limit: str) -> k8s.V1EmptyDirVolumeSource:
    return k8s.V1EmptyDirVolumeSource(medium="Memory", size_limit=limit)
