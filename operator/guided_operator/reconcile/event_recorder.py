"""Kubernetes events: a Warning whenever a condition takes a reason that its owner must act on.

And a Normal one, rarely, where engines change their number of draft tokens.
"""

import datetime as dt
import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from guided_contract.status import NotReadyReason
from guided_operator.api.status import Condition
from guided_operator.kube import events, kinds
from guided_operator.kube.api_errors import AlreadyExists, ApiError
from guided_operator.kube.apiserver import Api
from guided_operator.reconcile.observe import Observed

Object = dict[str, Any]
logger = logging.getLogger(__name__)

# Condition and reason. Every reason of Stalled is recorded too, and of AuxiliaryResourcesReady being False,
# since it means that somebody has to act. What resolves itself is in the status only.
_ACTED_ON: Final = frozenset({("Stalled", "True"), ("AuxiliaryResourcesReady", "False")})
_RECORDED: Final = frozenset(
    ("GuidedDecoding", reason)
    for reason in ("Desync", NotReadyReason.SERVICE_EXHAUSTED, NotReadyReason.TOKENIZERS_DIFFER)
)


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
    about = _about(observed)
    for condition in filter(_is_recorded, _of_the_model(after)):
        old = before.get(condition.type, {})
        if old.get("reason") == condition.reason:
            continue
        facts = (condition.type, condition.reason, old.get("reason"), old.get("lastTransitionTime"))
        await _post(api, events.warning(about, condition.reason, condition.message, facts, now))


async def record_draft_tokens(
    api: Api, observed: Observed, numbers: Sequence[int | None], now: dt.datetime
) -> None:
    """Post an event if the number of draft tokens that engines choose has changed: one a minute at most.

    Parameters
    ----------
    numbers
        Two: of the stored status, and of the one that will be written; None: not known.
    now
        Wall-clock time, with a time zone: the event's timestamps, and the minute.
    """
    before, after = numbers
    if before is None or after is None or before == after:
        return
    message = f"numTokens Auto: {after} draft tokens a sequence at the load now, {before} before"
    facts = ("numTokens", now.astimezone(dt.UTC).strftime("%Y-%m-%dT%H:%M"))
    await _post(api, events.normal(_about(observed), "DraftTokensChanged", message, facts, now))


def _about(observed: Observed) -> Object:
    return {
        "apiVersion": kinds.MODEL.api_version,
        "kind": kinds.MODEL.name,
        "namespace": observed.key.namespace,
        "name": observed.key.name,
        "uid": observed.uid,
    }


async def _post(api: Api, event: Object) -> None:
    try:
        await events.post(api, event)
    except AlreadyExists:
        return
    except ApiError as error:
        logger.warning("no event that %s: %s", event["reason"], error)


def _of_the_model(conditions: list[Condition]) -> Iterator[Condition]:
    """Yield all, but not Stalled where the operator is blind: a metric says that, once for all models."""
    is_blind = any((each.type, each.status) == ("Ready", "Unknown") for each in conditions)
    return (each for each in conditions if not (is_blind and each.type == "Stalled"))


def _is_recorded(condition: Condition) -> bool:
    return (condition.type, condition.status) in _ACTED_ON or (condition.type, condition.reason) in _RECORDED
