"""`status.speculation`: how the pods' engines schedule, together."""

import dataclasses
import datetime as dt
from typing import Any

import pytest

from guided_contract.status import DraftsStatus, PodStatus, SpeculationStatus
from guided_operator.reconcile.conditions.situation import Situation
from guided_operator.reconcile.report import make_status, to_object
from support.observed import model, situation, telling

NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
DRAFT = {"method": "DraftModel", "numTokens": 3, "draftModel": {"uri": "file:///draft"}}
BY_LOAD = DRAFT | {"numTokens": "Auto", "maxTokens": 5}


def told(found: Situation) -> Any:
    return to_object(make_status(found, NOW)).get("speculation")


def reported(*pages: PodStatus, **spec: Any) -> Any:
    """Return what a status says of the pages of some pods."""
    return told(telling(*pages, raw=model(**spec)))


@pytest.mark.parametrize(
    ("scheduling", "speculative", "is_async", "falls_back"),
    [
        ([], DRAFT, None, False),
        (["", ""], DRAFT, None, False),  # they have not said so yet
        (["", "Async"], DRAFT, True, False),
        (["Async", "Sync"], DRAFT, False, True),
        (["Async", "Sync"], DRAFT | {"asyncScheduling": "On"}, False, True),
        (["Async", "Sync"], DRAFT | {"asyncScheduling": "Off"}, False, False),
        (["Async", "Sync"], {"method": "NGram", "numTokens": 3}, False, True),
    ],
)
def test_what_is_less_than_asked_for_is_said(
    scheduling: list[Any], speculative: dict[str, Any], *, is_async: bool | None, falls_back: bool
) -> None:
    found = reported(*(PodStatus(ready=True, scheduling=one) for one in scheduling), speculative=speculative)
    assert found.get("async") is is_async
    assert bool(found["fallback"]) is falls_back


def speculating(**tokens: Any) -> PodStatus:
    return PodStatus(ready=True, speculation=SpeculationStatus(method="draft_model", **tokens))


def trying(least: int, most: int) -> PodStatus:
    return speculating(num_tokens=(least, most))


def choosing(chosen: int | None) -> PodStatus:
    tried = SpeculationStatus() if chosen is None else SpeculationStatus(num_tokens=(2, 2))
    return PodStatus(ready=True, drafts=DraftsStatus(chosen=chosen), speculation=tried)


STARTING, WAITING = PodStatus(ready=True), speculating()


@pytest.mark.parametrize(
    ("pages", "speculative", "method", "tokens"),
    [
        ([STARTING], DRAFT, None, None),
        ([STARTING, WAITING], DRAFT, "draft_model", None),  # has made no step
        ([WAITING, trying(3, 3)], DRAFT, "draft_model", (3, 3)),
        # Nobody's numbers, and the wrong way round.
        ([trying(3, 3), trying(-7, 1 << 40)], DRAFT, "draft_model", (0, (1 << 31) - 1)),
        ([trying(5, 2)], DRAFT, "draft_model", (2, 5)),
        # Of pods that choose by load, what they chose.
        ([choosing(None), choosing(None)], BY_LOAD, None, None),
        ([choosing(1), choosing(None), choosing(3)], BY_LOAD, None, (1, 3)),
        ([choosing(-4)], BY_LOAD, None, (0, 0)),
    ],
)
def test_method_and_tokens_are_what_the_pods_run_with_now(
    pages: list[PodStatus], speculative: dict[str, Any], method: str | None, tokens: tuple[int, int] | None
) -> None:
    found = reported(*pages, speculative=speculative)
    assert found.get("method") == method
    assert found.get("numTokens") == (tokens and {"min": tokens[0], "max": tokens[1]})


def test_pods_that_speculate_are_told_of_though_their_spec_has_become_another() -> None:
    """An edit that is refused leaves the pods as they are: absent would say that they do not speculate."""
    before = model(speculative=DRAFT)
    page = PodStatus(ready=True, scheduling="Async", speculation=SpeculationStatus(method="draft_model"))
    observed = telling(page, raw=before).observed
    wrong = {**before["spec"]["engine"], "args": ["--enable-batch-sharded-sampling"]}
    unread = model(speculative=DRAFT | {"numTokens": 99})
    staged = {"parallelism": {"pipeline": 2}, "guidedDecoding": {"placement": "Scheduler"}}
    asked = {"engine": wrong, "speculative": {"method": "MTP", "numTokens": 1}, **staged}
    for after in (model(engine=wrong), unread, model(**asked)):  # the last would fall back, were it run
        found = told(situation(dataclasses.replace(observed, model=after)))
        assert found == {"method": "draft_model", "async": True, "fallback": ""}


def test_drafts_that_are_hardly_accepted_by_design_are_told_of() -> None:
    asked = {
        "engine": {"image": "vllm/vllm-openai:v0.32.0"},
        "parallelism": {"pipeline": 2},
        "speculative": {"method": "MTP", "numTokens": 1},
    }
    page = PodStatus(ready=True, scheduling="Async", versions={"modelRunner": "V2"})
    by_scheduler = reported(page, guidedDecoding={"placement": "Scheduler"}, **asked)
    assert by_scheduler["fallback"].startswith("with pipeline stages vLLM's scheduler does not see drafts")
    assert by_scheduler["fallback"].endswith("use placement Rank")  # nothing of it is cut
    assert reported(page, **asked)["fallback"] == ""
