"""How a pod stops: what its launcher waits for, and the termination grace period that covers it."""

from math import ceil
from typing import Final

from guided_contract.config import DrainConfig
from guided_operator.api import GuidedModel
from guided_operator.api.base import seconds
from guided_operator.builders.objects import Object
from guided_operator.builders.pod_paths import Site

# After the drain, or where there is nothing to drain: vLLM's own end (the launcher kills it after 20 s, and
# ranks without it after 6), the sidecar's last spans (5 s), and what the node needs between them.
END_S: Final = 40
# Requests may still arrive so long after a pod was removed from its Service, until every proxy knows.
_ENDPOINT_LAG_S: Final = 5.0

# The kubelet sends TERM to a container that it has only just started where its pod is deleted meanwhile, and
# the kernel drops each signal that a container's first process has no handler for. So it waits, here 10 s at
# most, until this process catches TERM, by bit 14 of its mask; after its first moments that is at once. Where
# the kernel tells no mask (gVisor) it does not wait.
HEARS_TERM: Final = """\
left=${2:-100}
while [ $left -gt 0 ]; do
  caught=$(sed -n 's/^SigCgt:[[:space:]]*//p' "/proc/${1:-1}/status")
  [ $((0x${caught:-4000} >> 14 & 1)) = 1 ] && break
  left=$((left - 1))
  sleep 0.1
done
"""


def lifecycle() -> Object:
    """Return the preStop hook: it waits until the container's first process handles TERM."""
    return {"preStop": {"exec": {"command": ["/bin/sh", "-c", HEARS_TERM]}}}


def drain_config(gm: GuidedModel, site: Site) -> DrainConfig | None:
    """Return how the launcher drains once it was told to stop; None: it stops at once, without a Service."""
    if not site.in_cluster:
        return None
    return DrainConfig(timeout_s=seconds(gm.spec.drain.timeout), endpoint_lag_s=_ENDPOINT_LAG_S)


def grace_period_s(gm: GuidedModel, site: Site) -> int:
    """Return the pod's termination grace period in seconds: long enough for all that spec.drain allows."""
    drain = drain_config(gm, site)
    return END_S + (ceil(drain.endpoint_lag_s + drain.timeout_s) if drain is not None else 0)
