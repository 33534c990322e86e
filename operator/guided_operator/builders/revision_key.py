"""The revision of a pod: the same key means the same pods, whatever release of the operator renders them."""

import hashlib
import json
from typing import Any, Final

from guided_operator.api import GuidedModel
from guided_operator.api.rollout import Rollout
from guided_operator.api.telemetry import Telemetry

# Parts of the spec that no pod is made from. Beside them all counts, so that a new field which is forgotten
# here restarts pods, rather than never reaching them.
_AROUND_PODS: Final[dict[str, Any]] = {
    "replicas": True,
    "network_policy": True,
    "telemetry": {"metrics"},
}
# It says what the image holds, which pods say as well.
_NOT_OF_PODS: Final = {**_AROUND_PODS, "engine": {"version"}}
# They are large, stand in the configuration, and no check of a spec that was taken once is about them.
_PARAMS: Final = {"logits_processors": {"__all__": {"params"}}}


def pod_key(gm: GuidedModel) -> str:
    """Return a hash of what the user set and pods are made from.

    Fields at their default do not count, so that neither writing a default out, nor the server filling it in,
    nor a later release's new field restarts a pod. A default never changes within an API version.
    """
    fields = _fields(gm, _NOT_OF_PODS)
    # Doubled, as containers get it: what was stored with a `$` that the kubelet expands is another revision.
    text = json.dumps(fields, sort_keys=True, separators=(",", ":")).replace("$", "$$")
    return hashlib.sha256(text.encode()).hexdigest()[:10]


def kept_spec(gm: GuidedModel) -> dict[str, Any]:
    """Return what a revision keeps of the spec that its pods are made from, to be checked before they run."""
    return _fields(gm, {**_NOT_OF_PODS, **_PARAMS})


def with_kept_spec(gm: GuidedModel, kept: dict[str, Any]) -> dict[str, Any]:
    """Return the resource as a manifest, with pods of a revision's spec and what is around them now."""
    now = gm.spec.model_dump(
        by_alias=True,
        exclude_defaults=True,
        include={**_AROUND_PODS, "guided_decoding": {"grammars"}, "rollout": True},
        mode="json",
    )
    if now.get("telemetry") == {}:
        del now["telemetry"]  # set for the pods alone
    spec = {**now, **kept}
    for part in now.keys() & kept.keys():
        spec[part] = {**kept[part], **now[part]}
    return {**gm.model_dump(by_alias=True, exclude_none=True, exclude={"spec", "status"}), "spec": spec}


def _fields(gm: GuidedModel, exclude: dict[str, Any]) -> dict[str, Any]:
    spec = gm.spec.model_copy(
        update={
            # Running pods follow their named grammars.
            "guided_decoding": gm.spec.guided_decoding.model_copy(update={"grammars": []}),
            "rollout": Rollout(restart_token=gm.spec.rollout.restart_token),
        }
    )
    fields = spec.model_dump(by_alias=True, exclude_defaults=True, exclude=exclude, mode="json")
    if fields.get("telemetry") == {} and spec.telemetry != Telemetry():
        del fields["telemetry"]  # set for the metrics alone
    return fields
