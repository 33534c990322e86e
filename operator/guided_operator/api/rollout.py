"""How a change reaches the pods: `spec.rollout`. Of its fields, restartToken alone is part of a revision."""

import re
from math import ceil, floor
from typing import Annotated, Any, Final

from pydantic import AfterValidator, Field, WithJsonSchema

from guided_operator.api.base import ApiModel, Duration, between, text
from guided_operator.api.rule import Rule, rules

_PERCENT: Final = r"^(100|[1-9]?[0-9])%$"
_MOST: Final = 10_000  # as replicas
_REVISION: Final = r"^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$"  # of a label's value, whatever makes it up


def _pods(value: int | str) -> int | str:
    if isinstance(value, str):
        if not re.fullmatch(_PERCENT, value):
            raise ValueError(f'"{value}" is neither a number of pods nor a percentage such as "25%"')
    elif not 0 <= value <= _MOST:
        raise ValueError(f"must be between 0 and {_MOST}")
    return value


Pods = Annotated[
    int | str,
    AfterValidator(_pods),
    WithJsonSchema(
        {
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "x-kubernetes-int-or-string": True,
            "minimum": 0,
            "maximum": _MOST,
            "pattern": _PERCENT,
            "maxLength": 4,
        }
    ),
]


class Rollout(ApiModel):
    """How a change reaches the pods."""

    model_config = rules(
        Rule(
            "maxUnavailable",
            "must not be 0 if maxSurge is 0: no pod could ever be replaced",
            "!has(self.maxUnavailable) || (self.maxUnavailable != 0 && self.maxUnavailable != '0%') || "
            "(has(self.maxSurge) && self.maxSurge != 0 && self.maxSurge != '0%')",
        )
    )

    max_surge: Pods = Field(
        default=0,
        description=(
            "Maximum number of pods above replicas during a rollout: a number, or a percentage of "
            "replicas, rounded up. Default: 0, because each extra pod needs extra GPUs."
        ),
    )
    max_unavailable: Pods = Field(
        default=1,
        description=(
            "Maximum number of pods that may be not ready during a rollout: a number, or a percentage of "
            "replicas, rounded down. Default: 1, so that a rollout needs no spare GPUs. With replicas 1 no "
            "pod serves meanwhile, unless maxSurge is 1 and this 0."
        ),
    )
    progress_deadline: Annotated[Duration, between("10s", "168h")] | None = Field(
        default=None,
        description=(
            "Time without progress after which Progressing becomes False, probes.startupTimeout to 168h. "
            "Default: probes.startupTimeout plus 20 minutes, for pulling a large image."
        ),
    )
    paused: bool = Field(
        default=False,
        description=(
            "Whether changes of the spec leave the pods as they are for now. Scaling still works. "
            "Default: false."
        ),
    )
    restart_token: Annotated[str, text(64)] | None = Field(
        default=None,
        description=(
            "Any text; changing it replaces all pods, as `kubectl rollout restart` does. Setting an "
            "earlier token again brings back its pods. Default: none."
        ),
    )
    rollback_to: Annotated[str, text(63, pattern=_REVISION)] | None = Field(
        default=None,
        description=(
            "Revision to run, as shown by status.revision; other changes that concern pods have no "
            "effect meanwhile. The last five are kept, as ControllerRevisions. Default: none, the pods "
            "follow the spec."
        ),
    )


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
