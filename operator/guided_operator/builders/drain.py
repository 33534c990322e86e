"""How a pod goes: what its launcher waits for, and the grace period that has room for all of it."""

from math import ceil
from typing import Final

from guided_contract.config import DrainConfig
from guided_operator.api import GuidedModel
from guided_operator.api.base import seconds
from guided_operator.builders.site import Site

# After the drain, or where there is nothing to drain: vLLM's own end (the launcher kills it after 20 s, and
# ranks without it after 6), the sidecar's last spans (5 s), and what the node needs between them.
END_S: Final = 40


def drain_config(gm: GuidedModel, site: Site) -> DrainConfig | None:
    """Return what the launcher waits for once it is told to stop; None: for nothing."""
    if site.endpoint_lag_s is None:
        return None
    return DrainConfig(timeout_s=seconds(gm.spec.drain.timeout), endpoint_lag_s=site.endpoint_lag_s)


def grace_period_s(gm: GuidedModel, site: Site) -> int:
    """Return a pod's grace period in seconds: nothing that spec.drain allows is ever cut off by the node."""
    drain = drain_config(gm, site)
    return END_S + (ceil(drain.endpoint_lag_s + drain.timeout_s) if drain is not None else 0)
