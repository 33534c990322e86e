"""A finding decides a condition."""

from dataclasses import dataclass

from guided_operator.api.status import ConditionStatus


@dataclass(frozen=True, slots=True)
class Finding:
    """A condition's status, reason and message."""

    status: ConditionStatus
    reason: str
    message: str = ""
