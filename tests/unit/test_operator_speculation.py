"""`status.speculation`: what the pods' sidecars tell of their guesses, together."""

import dataclasses
import datetime as dt
from typing import Any

import pytest

from guided_contract.status import PodStatus, SpeculationStatus
from guided_operator.reconcile.report import make_status, to_object
from guided_operator.watch.sidecar_status import Page
from support.observed import applied, model, pod, revision_of, seen, situation

NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
DRAFT = {"method": "DraftModel", "numTokens": 3, "draftModel": {"uri": "file:///draft"}}


def said(*told: SpeculationStatus | None, **spec: Any) -> Any:
    """Return what a status says when each of some pods tells this."""
    raw = model(**spec)
    pods = tuple(pod(f"m-{number}", revision_of(raw)) for number, _ in enumerate(told))
    pages = {
        each.uid: Page(PodStatus(ready=True, speculation=one)) for each, one in zip(pods, told, strict=True)
    }
    observed = dataclasses.replace(applied(seen(raw)), pods=pods, pages=pages)
    return to_object(make_status(situation(observed), NOW)).get("speculation")


def test_nothing_is_said_without_speculation() -> None:
    assert said(SpeculationStatus(drafted=4, accepted=2)) is None


def test_pods_that_have_not_guessed_yet() -> None:
    assert said(SpeculationStatus(), None, speculative=DRAFT) == {"acceptanceRate": "", "fallback": ""}
    assert said(speculative=DRAFT) == {"acceptanceRate": "", "fallback": ""}


def test_share_of_all_pods_together() -> None:
    one = SpeculationStatus(drafted=100, accepted=80, scheduling="Async")
    other = SpeculationStatus(drafted=300, accepted=60, scheduling="Async")
    assert said(one, other, speculative=DRAFT) == {"acceptanceRate": "0.35", "async": True, "fallback": ""}


@pytest.mark.parametrize(
    ("speculative", "says"),
    [
        (DRAFT, True),
        (DRAFT | {"asyncScheduling": "Off"}, False),
        ({"method": "NGram", "numTokens": 3}, False),  # as the field's description says
    ],
)
def test_what_is_less_than_asked_for_is_said(speculative: dict[str, Any], *, says: bool) -> None:
    found = said(SpeculationStatus(drafted=1, accepted=1, scheduling="Sync"), speculative=speculative)
    assert (found["acceptanceRate"], found["async"]) == ("1.00", False)
    assert bool(found["fallback"]) is says


def test_what_a_pod_lies_stays_within_bounds() -> None:
    found = said(SpeculationStatus(drafted=2, accepted=9), speculative=DRAFT)
    assert found["acceptanceRate"] == "1.00"
    assert said(SpeculationStatus(drafted=-2, accepted=-9), speculative=DRAFT)["acceptanceRate"] == ""
