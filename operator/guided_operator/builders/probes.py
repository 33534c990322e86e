"""Health checks of a pod. Ports are integers: a probe by another container's port name never fails."""

from math import ceil
from typing import Final

from kubernetes.aio import client as k8s

from guided_operator.api import GuidedModel
from guided_operator.api.base import seconds
from guided_operator.builders.drain import END_S
from guided_operator.builders.pod_paths import Site

_STARTUP_PERIOD_S: Final = 5


def engine_startup(gm: GuidedModel, site: Site) -> k8s.V1Probe:
    """Return the engine's startup probe: the launcher says when vLLM serves, or the time is up."""
    attempts = ceil(seconds(gm.spec.probes.startup_timeout) / _STARTUP_PERIOD_S)
    return _hopeless(_http("/startupz", site.ports.launcher, period_s=_STARTUP_PERIOD_S, failures=attempts))


def engine_liveness(site: Site) -> k8s.V1Probe:
    """Return the engine's liveness probe; the launcher itself waits for stallTimeout before it says no."""
    return _hopeless(_http("/livez", site.ports.launcher, period_s=5, failures=3))


def sidecar_startup(site: Site) -> k8s.V1Probe:
    """Return the sidecar's startup probe: its socket is bound. Not the engine, which starts after it."""
    return _http("/startupz", site.ports.sidecar, period_s=1, failures=180)


def sidecar_readiness(site: Site) -> k8s.V1Probe:
    """Return the pod's readiness: a cached verdict on ranks, grammars and the guided probe.

    The sidecar notices within 21 s that the engine stands still; here it takes at most 8 s more.
    """
    return _http("/readyz", site.ports.sidecar, period_s=3, failures=2)


def _hopeless(probe: k8s.V1Probe) -> k8s.V1Probe:
    """Give a container that fails a probe no time to drain: it would answer nobody."""
    probe.termination_grace_period_seconds = END_S
    return probe


def _http(path: str, port: int, *, period_s: int, failures: int) -> k8s.V1Probe:
    return k8s.V1Probe(
        http_get=k8s.V1HTTPGetAction(path=path, port=port),
        period_seconds=period_s,
        timeout_seconds=4,
        failure_threshold=failures,
    )
