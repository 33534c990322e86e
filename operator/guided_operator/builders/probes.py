"""Health checks of a pod. Ports are integers: a probe by another container's port name never fails."""

from math import ceil
from typing import Final

from guided_operator.api import GuidedModel
from guided_operator.api.base import seconds
from guided_operator.builders.drain import END_S
from guided_operator.builders.objects import Object, given
from guided_operator.builders.pod_paths import Site

_STARTUP_PERIOD_S: Final = 5


def engine_startup(gm: GuidedModel, site: Site) -> Object:
    """Return the engine's startup probe: the launcher says when vLLM serves, or the time is up."""
    attempts = ceil(seconds(gm.spec.probes.startup_timeout) / _STARTUP_PERIOD_S)
    return _http("/startupz", site.ports.launcher, _STARTUP_PERIOD_S, attempts, END_S)


def engine_liveness(site: Site) -> Object:
    """Return the engine's liveness probe; the launcher itself waits for stallTimeout before it says no."""
    return _http("/livez", site.ports.launcher, 5, 3, END_S)


def sidecar_startup(site: Site) -> Object:
    """Return the sidecar's startup probe: its socket is bound. Not the engine, which starts after it."""
    return _http("/startupz", site.ports.sidecar, 1, 180)


def sidecar_readiness(site: Site) -> Object:
    """Return the pod's readiness: a cached verdict on ranks, grammars and the guided probe.

    The sidecar notices within 21 s that the engine stands still; here it takes at most 8 s more.
    """
    return _http("/readyz", site.ports.sidecar, 3, 2)


def _http(path: str, port: int, period_s: int, failures: int, end_s: int | None = None) -> Object:
    """Return a probe; a container that fails it answers nobody: with `end_s` it gets no time to drain."""
    return given(
        failureThreshold=failures,
        httpGet={"path": path, "port": port},
        periodSeconds=period_s,
        terminationGracePeriodSeconds=end_s,
        timeoutSeconds=4,
    )
