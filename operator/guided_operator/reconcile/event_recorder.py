"""Kubernetes events: a Warning whenever a condition takes a reason that its owner must act on."""

import datetime as dt
import hashlib
import logging
from collections.abc import Mapping
from typing import Any, Final

from guided_contract import names
from guided_contract.reasons import NotReadyReason
from guided_operator.api.status import Condition
from guided_operator.kube import kinds
from guided_operator.kube.apiserver import FIELD_MANAGER, AlreadyExists, Api, ApiError
from guided_operator.reconcile.observe import Observed

Object = dict[str, Any]
logger = logging.getLogger(__name__)

# Condition and reason. Every reason of Stalled is recorded too, since it means that somebody has to act.
# What resolves itself is in the status only.
_RECORDED: Final = frozenset(
    ("GuidedDecoding", reason)
    for reason in ("Desync", NotReadyReason.SERVICE_EXHAUSTED, NotReadyReason.TOKENIZERS_DIFFER)
)
_MAX_MESSAGE: Final = 1024  # as the API server has it


async def record(
    api: Api, observed: Observed, before: Mapping[str, Object], after: list[Condition], now: dt.datetime
) -> None:
    """Post an event for each such condition whose reason is new. Call it before the status is written.

    The event's name is derived from the condition before the change, so that a pass that fails and is
    repeated posts no event twice. The API server keeps events for an hour; an event that it refuses is
    logged and lost.

    Parameters
    ----------
    before
        The conditions of the stored status, by type.
    after
        The conditions that will be written.
    now
        Wall-clock time, with a time zone: the event's timestamps.
    """
    for condition in after:
        old = before.get(condition.type, {})
        if not _is_recorded(condition) or old.get("reason") == condition.reason:
            continue
        path = kinds.api_path("v1", "events", observed.key.namespace)
        try:
            await api.create(path, _event(observed, condition, old, now))
        except AlreadyExists:
            continue
        except ApiError as error:
            logger.warning("no event that %s: %s", condition.reason, error)


def _is_recorded(condition: Condition) -> bool:
    return condition.type == "Stalled" or (condition.type, condition.reason) in _RECORDED


def _event(observed: Observed, condition: Condition, old: Object, now: dt.datetime) -> Object:
    stamp = now.astimezone(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    facts = (observed.uid, condition.type, condition.reason, old.get("reason"), old.get("lastTransitionTime"))
    digest = hashlib.sha256("/".join(map(str, facts)).encode()).hexdigest()
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "name": f"{observed.key.name}.{digest[:16]}",
            "namespace": observed.key.namespace,
        },
        "involvedObject": {
            "apiVersion": f"{names.API_GROUP}/{names.API_VERSION}",
            "kind": names.KIND,
            "namespace": observed.key.namespace,
            "name": observed.key.name,
            "uid": observed.uid,
        },
        "type": "Warning",
        "reason": condition.reason,
        "message": condition.message[:_MAX_MESSAGE],
        "source": {"component": FIELD_MANAGER},
        "firstTimestamp": stamp,
        "lastTimestamp": stamp,
        "count": 1,
    }
