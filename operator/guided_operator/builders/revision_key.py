"""The revision of a pod: the same key means the same pods, whatever release of the operator renders them."""

import hashlib
import json
from typing import Any, Final

from guided_operator.api import GuidedModel
from guided_operator.api.rollout import Rollout
from guided_operator.api.telemetry import Telemetry

# Parts of the spec that no pod is made from. Beside them all counts, so that a new field which is forgotten
# here restarts pods, rather than never reaching them.
_NOT_OF_PODS: Final[dict[str, Any]] = {
    "engine": {"version"},
    "replicas": True,
    "autoscaling": True,
    "network_policy": True,
    "telemetry": {"metrics"},
}


def pod_key(gm: GuidedModel) -> str:
    """Return a hash of what the user set and pods are made from.

    Fields at their default do not count, so that neither writing a default out, nor the server filling it in,
    nor a later release's new field restarts a pod. A default never changes within an API version.
    """
    spec = gm.spec.model_copy(
        update={
            # Running pods follow their named grammars.
            "guided_decoding": gm.spec.guided_decoding.model_copy(update={"grammars": []}),
            "rollout": Rollout(restart_token=gm.spec.rollout.restart_token),
        }
    )
    fields = spec.model_dump(by_alias=True, exclude_defaults=True, exclude=_NOT_OF_PODS, mode="json")
    if fields.get("telemetry") == {} and spec.telemetry != Telemetry():
        del fields["telemetry"]  # set for the metrics alone
    text = json.dumps(fields, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:10]
