"""The volumes of a pod, and where each container sees them. The root file system is read-only."""

from pathlib import PurePosixPath
from typing import Final

from guided_operator.api import GuidedModel, words
from guided_operator.api.pod import SOURCES
from guided_operator.api.quantity import canonical
from guided_operator.api.resources import Claim
from guided_operator.builders import pod_paths
from guided_operator.builders.grammars import map_name
from guided_operator.builders.objects import Object
from guided_operator.builders.pod_paths import Site
from guided_operator.builders.source import claims, compile_cache, downloads

_OWN: Final = "own-"  # before the names of the user's volumes


def volumes(gm: GuidedModel, site: Site, config_map: str) -> list[Object]:
    """Return the pod's volumes."""
    found = [
        # Compiled grammars live there, up to 22 MB each; what is used counts against the containers' memory.
        _memory("run", "1Gi"),
        {"configMap": {"name": config_map}, "name": "config"},
        # In every pod, and as a whole: the kubelet brings changes to no other kind of mount.
        {"configMap": {"name": map_name(gm.name)}, "name": "grammars"},
        _memory("shm", _shm_limit(gm)),
        _folder("engine-tmp"),
        _folder("sidecar-tmp"),
    ]
    if site.in_cluster:
        found.append(_folder("plugin"))
    if _downloads(gm, site):
        hub = gm.spec.storage.hub.persistent_volume_claim
        found.append(_claimed("hub", hub) if hub is not None else _folder("hub"))
    if (cache := compile_cache(gm, site)) is not None:
        found.append(_claimed("cache", cache))
    for claim in claims(gm):
        source = {"claimName": claim, "readOnly": True}
        found.append({"name": _claim_volume(gm, claim), "persistentVolumeClaim": source})
    return found


def own_volumes(gm: GuidedModel) -> list[Object]:
    """Return the user's volumes, of the sources that these may have."""
    return [
        {"name": _OWN + volume["name"], **{each: volume[each] for each in SOURCES if each in volume}}
        for volume in gm.spec.pod.volumes
    ]


def on_node(made: list[Object]) -> str:
    """Return our own folders on the node's disk, with commas; users' own are theirs to declare."""
    return ",".join(each["name"] for each in made if each.get("emptyDir") == {})


def engine_mounts(gm: GuidedModel, site: Site) -> list[Object]:
    """Return what the engine container sees."""
    own = [_own_mount(volume["name"]) for volume in gm.spec.pod.volumes]
    if compile_cache(gm, site) is not None:
        own.append(_mount("cache", pod_paths.CACHE))
    return [*_shared_mounts(gm, site), _mount("shm", "/dev/shm"), *own, *_home_mounts(site, "engine-tmp")]  # noqa: S108 - an emptyDir of the pod's own


def sidecar_mounts(gm: GuidedModel, site: Site) -> list[Object]:
    """Return what the sidecar sees: for the tokenizer the model, or whom to trust on the way to the hub."""
    grammars = _read_only("grammars", site.named_grammars)
    trust = [{**_own_mount(name), "readOnly": True} for name in _trusted(gm)]
    return [*_shared_mounts(gm, site), grammars, *trust, *_home_mounts(site, "sidecar-tmp")]


def plugin_mounts() -> list[Object]:
    """Return what the copying container sees: the folder it fills."""
    return [_mount("plugin", pod_paths.PLUGIN_DIR)]


def _shared_mounts(gm: GuidedModel, site: Site) -> list[Object]:
    folder = str(PurePosixPath(site.config_path).parent)
    mounts = [_mount("run", site.run_dir), _read_only("config", folder)]
    if site.in_cluster:
        mounts.append(_read_only("plugin", pod_paths.PLUGIN_DIR))
    if _downloads(gm, site):
        mounts.append(_mount("hub", pod_paths.HUB))
    mounts += [_read_only(_claim_volume(gm, claim), site.models(claim)) for claim in claims(gm)]
    return mounts


def _home_mounts(site: Site, volume: str) -> list[Object]:
    return [_mount(volume, pod_paths.HOME)] if site.in_cluster else []


def _claim_volume(gm: GuidedModel, claim: str) -> str:
    # A volume's name has at most 63 characters and no dots; a claim's may have 253 and some.
    return f"model-{claims(gm).index(claim)}"


def _downloads(gm: GuidedModel, site: Site) -> bool:
    return site.in_cluster and downloads(gm)


def _shm_limit(gm: GuidedModel) -> str:
    """Return the size of /dev/shm: vLLM's message queues (16 MiB x 10 chunks per rank) and NCCL's buffers."""
    return canonical(gm.spec.storage.shared_memory or f"{1024 + 512 * gm.spec.parallelism.ranks}Mi")


def _trusted(gm: GuidedModel) -> list[str]:
    """Return the names of the user's volumes that variables of the way to hub and collector point into."""
    files = [
        PurePosixPath(variable.value or "")
        for variable in gm.spec.engine.env
        if variable.name in (*words.WAY_TO_THE_HUB, *words.TELEMETRY)
    ]
    return [
        volume["name"]
        for volume in gm.spec.pod.volumes
        if any(file.is_relative_to(f"{pod_paths.OWN_VOLUMES}/{volume['name']}") for file in files)
    ]


def _folder(name: str) -> Object:
    return {"emptyDir": {}, "name": name}


def _memory(name: str, limit: str) -> Object:
    return {"emptyDir": {"medium": "Memory", "sizeLimit": limit}, "name": name}


def _claimed(name: str, claim: Claim) -> Object:
    return {"name": name, "persistentVolumeClaim": {"claimName": claim.claim_name}}


def _mount(volume: str, path: str) -> Object:
    return {"mountPath": path, "name": volume}


def _read_only(volume: str, path: str) -> Object:
    return {"mountPath": path, "name": volume, "readOnly": True}


def _own_mount(name: str) -> Object:
    return _mount(f"{_OWN}{name}", f"{pod_paths.OWN_VOLUMES}/{name}")
