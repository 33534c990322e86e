"""The checks of the condition AuxiliaryResourcesReady: what stands beside the pods, which need none of it."""

from dataclasses import replace
from typing import Final

from guided_operator.kube import kinds
from guided_operator.reconcile.conditions.checks import Check, absent, faulty, incompatible, unseen
from guided_operator.reconcile.conditions.finding import Finding
from guided_operator.reconcile.conditions.inputs import Situation


def _none_planned(situation: Situation) -> Finding | None:
    found = incompatible(situation)
    return found and replace(found, status="Unknown")


def _refused(situation: Situation) -> Finding | None:
    return faulty(fault for fault in situation.outcome.faults if fault.auxiliary)


def _kind_unseen(situation: Situation) -> Finding | None:
    # While revisions cannot be seen, nothing is written at all.
    beside = (kind.name for kind in situation.planned if kind.auxiliary)
    return unseen(situation, [kinds.REVISION.name, *beside])


def _api_absent(situation: Situation) -> Finding | None:
    return absent(kind for kind in situation.absent if kind.auxiliary)


def _applied(situation: Situation) -> Finding:
    beside = sorted(kind.name for kind in situation.planned if kind.auxiliary)
    return Finding("True", "Applied", ", ".join(beside))


AUXILIARY_RESOURCES: Final[tuple[Check, ...]] = (
    _none_planned,
    _refused,
    _kind_unseen,
    _api_absent,
    _applied,
)
