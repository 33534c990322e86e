"""CPU, memory and accelerators of each container, with what it asks for where the user says nothing.

A container without requests has the lowest share of a busy node's CPU, and is the first to be killed when the
node runs out of memory.
"""

from typing import Final

from guided_operator.api import GuidedModel
from guided_operator.api.quantity import canonical
from guided_operator.api.resources import Resources
from guided_operator.builders.objects import Object, given

# vLLM wants a CPU for each of its processes: the ranks, and of each engine its core and its API server.
_CPU_PER_ENGINE: Final = 2
_MEMORY_GI: Final = 4  # of a pod's other processes
_MEMORY_GI_PER_RANK: Final = 4
_SIDECAR: Final = Resources(requests={"cpu": "100m", "memory": "512Mi"}, limits={"memory": "4Gi"})
_PLUGIN: Final = Resources(requests={"cpu": "10m", "memory": "32Mi"}, limits={"memory": "128Mi"})


def engine_resources(gm: GuidedModel) -> Object:
    """Return what the engine gets: what the user says, what follows from the ranks, and accelerators."""
    spread, accelerator = gm.spec.parallelism, gm.spec.engine.accelerator
    requests = {
        "cpu": canonical(str(spread.ranks + _CPU_PER_ENGINE * spread.data)),
        "memory": canonical(f"{_MEMORY_GI + _MEMORY_GI_PER_RANK * spread.ranks}Gi"),
    }
    resources = _filled(gm.spec.resources, Resources(requests=requests))
    own = accelerator.resource_of(spread.ranks)
    # The server adds requests equal to these limits; written out, the live object equals the wanted one.
    resources = Resources(requests=resources.requests | own, limits=resources.limits | own)
    claims = [{"name": claim["name"]} for claim in (*accelerator.claims, *gm.spec.pod.resource_claims)]
    return given(claims=claims or None) | _requirements(resources)


def sidecar_resources(gm: GuidedModel) -> Object:
    """Return what the sidecar gets."""
    return _requirements(_filled(gm.spec.sidecar.resources, _SIDECAR))


def plugin_resources() -> Object:
    """Return what the container gets that copies the plugin."""
    return _requirements(_PLUGIN)


def _filled(own: Resources, default: Resources) -> Resources:
    """Return the user's resources with the default of each that the user says nothing of.

    A request beside another's limit could exceed it, and a limit beside another's request fall below it.
    """
    said = own.requests.keys() | own.limits.keys()
    requests = {name: value for name, value in default.requests.items() if name not in said}
    limits = {name: value for name, value in default.limits.items() if name not in said}
    return Resources(requests=requests | own.requests, limits=limits | own.limits)


def _requirements(resources: Resources) -> Object:
    return given(limits=resources.limits or None, requests=resources.requests or None)
