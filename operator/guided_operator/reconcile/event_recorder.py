"""Kubernetes events: a Warning whenever a condition takes a reason that its owner must act on."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from guided_contract.status import NotReadyReason
from guided_operator.api.status import Condition

Object = dict[str, Any]
Warn = Callable[[Object, str, str], None]  # about an object, with a reason and a message

# Condition and reason. Every reason of Stalled is recorded too, and of AuxiliaryResourcesReady being False,
# since it means that somebody has to act. What resolves itself is in the status only.
_ACTED_ON: Final = frozenset({("Stalled", "True"), ("AuxiliaryResourcesReady", "False")})
_RECORDED: Final = frozenset(
    ("GuidedDecoding", reason)
    for reason in ("Desync", NotReadyReason.SERVICE_EXHAUSTED, NotReadyReason.TOKENIZERS_DIFFER)
)


def record(warn: Warn, model: Object, before: Mapping[str, Object], after: list[Condition]) -> None:
    """Warn of each such condition whose reason is new. Call it once the status is written.

    Parameters
    ----------
    before
        The conditions of the status before, by type.
    after
        The conditions that were written.
    """
    for condition in filter(_is_recorded, _of_the_model(after)):
        if before.get(condition.type, {}).get("reason") != condition.reason:
            warn(model, condition.reason, condition.message)


def _of_the_model(conditions: list[Condition]) -> Iterator[Condition]:
    """Yield all, but not Stalled where the operator is blind: a metric says that, once for all models."""
    is_blind = any((each.type, each.status) == ("Ready", "Unknown") for each in conditions)
    return (each for each in conditions if not (is_blind and each.type == "Stalled"))


def _is_recorded(condition: Condition) -> bool:
    return (condition.type, condition.status) in _ACTED_ON or (condition.type, condition.reason) in _RECORDED
