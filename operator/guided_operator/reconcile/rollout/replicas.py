"""How many replicas there should be, also while an autoscaler takes over or hands back. Pure.

`spec.replicas` says it, whoever wrote that: a person, `kubectl scale` or an autoscaler. Only at the moment of
handing over to an autoscaler it may say nothing: `replicas` was taken out of a manifest, and the API server
put the default in its place. So until the autoscaler has decided for the first time, nothing is taken away.
"""

from typing import Any

from guided_operator.api import GuidedModel
from guided_operator.builders import is_grouped, nodes_name
from guided_operator.kube import kinds
from guided_operator.reconcile.observe import Observed

Object = dict[str, Any]


def wanted_replicas(model: GuidedModel, observed: Observed) -> int:
    """Return how many replicas there should be now."""
    asked, scaling = model.spec.replicas, model.spec.autoscaling
    if scaling is None or asked == 0 or _has_decided(observed):
        return asked
    return max(asked, min(_present(model, observed), scaling.max_replicas))


def _present(model: GuidedModel, observed: Observed) -> int:
    """Return how many replicas were wanted last."""
    grouped = is_grouped(model)
    kind = kinds.WORKER_SET if grouped else kinds.DEPLOYMENT
    child = observed.child(kind, nodes_name(model) if grouped else model.name)
    if child is None or not kinds.is_owned(child, observed.uid):
        return 0
    replicas: int = child["spec"].get("replicas", 0)
    return replicas


def _has_decided(observed: Observed) -> bool:
    """Return whether the autoscaler has worked out a number: then `replicas` is its number.

    Also KEDA decides by a HorizontalPodAutoscaler, which has the labels of its ScaledObject. Where the
    operator may see none, a ScaledObject that is in order is believed.
    """
    scalers = observed.children.get(kinds.AUTOSCALER.name, {})
    if any(_decides(scaler) for scaler in scalers.values()):
        return True
    if kinds.AUTOSCALER.name not in observed.blind:
        return False
    scaled = observed.children.get(kinds.SCALED_OBJECT.name, {})
    return any(_is_true(each, "Ready") for each in scaled.values())


def _decides(scaler: Object) -> bool:
    return bool(_status(scaler).get("lastScaleTime")) or _is_true(scaler, "ScalingActive")


def _is_true(item: Object, condition: str) -> bool:
    conditions = _status(item).get("conditions") or ()
    return any(each["type"] == condition and each["status"] == "True" for each in conditions)


def _status(item: Object) -> Object:
    status: Object = item.get("status") or {}
    return status
