"""Kubernetes events: a Warning whenever a condition takes a reason that its owner must act on."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from guided_contract.status import NotReadyReason
from guided_operator.api.status import Condition

Object = dict[str, Any]
Warn = Callable[[Object, str, str], None]  # about an object, with a reason and a message

# Somebody has to act where one of these is False, but for these reasons. What resolves itself, and that the
# operator may not see a kind (Unknown, which a metric says once for all models), is in the status only.
_ACTED_ON: Final = ("Progressing", "AuxiliaryResourcesReady")
_AS_ASKED: Final = ("Complete", "ScaledToZero", "Paused", "RolledBack")
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
    for condition in filter(_is_recorded, after):
        if before.get(condition.type, {}).get("reason") != condition.reason:
            warn(model, condition.reason, condition.message)


def _is_recorded(condition: Condition) -> bool:
    if condition.status == "False" and condition.type in _ACTED_ON:
        return condition.reason not in _AS_ASKED
    return (condition.type, condition.reason) in _RECORDED
