"""How pods change, start and stop: `spec.rollout`, `spec.probes` and `spec.drain`.

Of a rollout's fields, restartToken alone is part of a revision.
"""

from math import ceil, floor
from typing import Annotated, Any, Final

from guided_operator.api.base import ApiModel, Duration, between, int_or_string, text
from guided_operator.api.rule import Rule, rules

_PERCENT: Final = r"^(100|[1-9]?[0-9])%$"
_REVISION: Final = r"^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$"  # of a label's value, whatever makes it up


Pods = Annotated[
    int | str,
    int_or_string(0, 10_000, _PERCENT, number="a number of pods", word='a percentage such as "25%"'),
]


class Rollout(ApiModel):
    """How a change reaches the pods."""

    model_config = rules(
        Rule(
            "maxUnavailable",
            "must not be 0 if maxSurge is 0, because no pod could be replaced",
            "!has(self.maxUnavailable) || (self.maxUnavailable != 0 && self.maxUnavailable != '0%') || "
            "(has(self.maxSurge) && self.maxSurge != 0 && self.maxSurge != '0%')",
        )
    )

    max_surge: Pods = 0
    """Maximum number of pods above replicas during a rollout: a number, or a percentage of replicas, rounded
    up. Default: 0, because an extra pod needs extra GPUs."""
    max_unavailable: Pods = 1
    """Maximum number of pods that are not ready during a rollout: a number, or a percentage of replicas,
    rounded down. Must not be 0 if maxSurge is 0. Default: 1, because a rollout then needs no spare GPUs. With
    replicas 1 no pod serves during the rollout, unless maxSurge is 1 and maxUnavailable 0."""
    progress_deadline: Annotated[Duration, between("10s", "168h")] | None = None
    """Time without progress after which Progressing becomes False, probes.startupTimeout to 168h. Default:
    probes.startupTimeout plus 20 minutes, for pulling a large image."""
    paused: bool = False
    """Whether rollouts of spec changes are paused. Scaling still works. Default: false."""
    restart_token: Annotated[str, text(64)] | None = None
    """Any text. A new value replaces all pods, as `kubectl rollout restart` does; an earlier value restores
    the pods of that time. Default: none."""
    rollback_to: Annotated[str, text(63, pattern=_REVISION)] | None = None
    """Revision to run. The last five are kept: `kubectl get controllerrevisions -L guidedmodel.io/revision`.
    While it is set, other changes do not reach the pods. Default: none, the pods follow the spec."""


class Probes(ApiModel):
    """Deadlines of health checks."""

    startup_timeout: Annotated[Duration, between("10s", "24h")] = "30m"
    """Time for the engine to load its model, 10s to 24h, after which the container is restarted. With several
    nodes it includes the wait for the pods of other nodes. Default: 30m."""
    stall_timeout: Annotated[Duration, between("5s", "1h")] = "2m"
    """Time, 5s to 1h, after which an engine that has requests but completes no step is restarted. Default:
    2m."""


class Drain(ApiModel):
    """How a pod stops."""

    timeout: Annotated[Duration, between("0s", "1h")] = "5m"
    """How long in-flight requests may run after the pod got its termination signal, 0s to 1h. A pod without
    requests stops within seconds. Default: 5m."""


def surge(rollout: Rollout, replicas: int) -> int:
    """Return how many pods there may be beyond `replicas`."""
    return _count(rollout.max_surge, replicas, ceil)


def unavailable(rollout: Rollout, replicas: int) -> int:
    """Return how many of `replicas` pods may be not ready: at least 1 where there may be none beyond."""
    # As the Deployment's controller: percentages that both come to 0 would leave nothing to do.
    least = 0 if surge(rollout, replicas) else 1
    return max(_count(rollout.max_unavailable, replicas, floor), least)


def _count(value: int | str, replicas: int, rounded: Any) -> int:
    if isinstance(value, int):
        return value
    count: int = rounded(replicas * int(value.removesuffix("%")) / 100)
    return count
