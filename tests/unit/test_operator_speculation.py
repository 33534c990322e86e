"""`status.speculation`: how the pods' engines schedule, together."""

import dataclasses
import datetime as dt
from typing import Any

import pytest

from guided_contract.status import DraftsStatus, PodStatus, SpeculationStatus
from guided_operator.reconcile.report import make_status, to_object
from guided_operator.watch.sidecar_status import Page
from support.observed import applied, model, pod, revision_of, seen, situation

NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
DRAFT = {"method": "DraftModel", "numTokens": 3, "draftModel": {"uri": "file:///draft"}}


def said(*told: Any, **spec: Any) -> Any:
    """Return what a status says when the engines of some pods schedule so."""
    return reported(*(PodStatus(ready=True, scheduling=one) for one in told), **spec)


def reported(*told: PodStatus, **spec: Any) -> Any:
    """Return what a status says of the pages of some pods."""
    raw = model(**spec)
    pods = tuple(pod(f"m-{number}", revision_of(raw)) for number, _ in enumerate(told))
    pages = {each.uid: Page(one) for each, one in zip(pods, told, strict=True)}
    observed = dataclasses.replace(applied(seen(raw)), pods=pods, pages=pages)
    return to_object(make_status(situation(observed), NOW)).get("speculation")


def test_nothing_is_said_without_speculation() -> None:
    assert said("Async") is None


def test_pods_that_have_not_said_so_yet() -> None:
    assert said("", "", speculative=DRAFT) == said(speculative=DRAFT) == {"fallback": ""}
    assert said("", "Async", speculative=DRAFT) == {"async": True, "fallback": ""}


@pytest.mark.parametrize(
    ("speculative", "says"),
    [
        (DRAFT, True),
        (DRAFT | {"asyncScheduling": "On"}, True),
        (DRAFT | {"asyncScheduling": "Off"}, False),
        ({"method": "NGram", "numTokens": 3}, True),
    ],
)
def test_what_is_less_than_asked_for_is_said(speculative: dict[str, Any], *, says: bool) -> None:
    found = said("Async", "Sync", speculative=speculative)
    assert found["async"] is False
    assert bool(found["fallback"]) is says


def test_method_and_tokens_are_what_the_pods_run_with_now() -> None:
    told = (
        SpeculationStatus(),  # has not started
        SpeculationStatus(method="draft_model"),  # has made no step
        SpeculationStatus(method="draft_model", num_tokens=(3, 3)),
        SpeculationStatus(method="draft_model", num_tokens=(-7, 1 << 40)),  # nobody's numbers
        SpeculationStatus(method="draft_model", num_tokens=(5, 2)),  # the wrong way round
    )
    found = [
        reported(*(PodStatus(ready=True, speculation=one) for one in pods), speculative=DRAFT)
        for pods in (told[:1], told[:2], told[1:3], told[:4], told[4:])
    ]
    assert [one.get("method") for one in found] == [None, *["draft_model"] * 4]
    most = (1 << 31) - 1
    assert [one.get("numTokens") for one in found] == [
        None,
        None,
        {"min": 3, "max": 3},
        {"min": 0, "max": most},
        {"min": 2, "max": 5},
    ]


def test_pods_that_speculate_are_told_of_though_their_spec_has_become_another() -> None:
    """An edit that is refused leaves the pods as they are: absent would say that they do not speculate."""
    before = model(speculative=DRAFT)
    pods = (pod("m-0", revision_of(before)),)
    page = PodStatus(ready=True, scheduling="Async", speculation=SpeculationStatus(method="draft_model"))
    wrong = {**before["spec"]["engine"], "args": ["--enable-batch-sharded-sampling"]}
    unread = model(speculative=DRAFT | {"numTokens": 99})
    staged = {"parallelism": {"pipeline": 2}, "guidedDecoding": {"placement": "Scheduler"}}
    asked = {"engine": wrong, "speculative": {"method": "MTP", "numTokens": 1}, **staged}
    for after in (model(engine=wrong), unread, model(**asked)):  # the last would fall back, were it run
        observed = dataclasses.replace(applied(seen(before)), model=after, pods=pods)
        pages = {pods[0].uid: Page(page)}
        status = make_status(situation(dataclasses.replace(observed, pages=pages)), NOW)
        assert to_object(status).get("speculation") == {
            "method": "draft_model",
            "async": True,
            "fallback": "",
        }


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


@pytest.mark.parametrize(
    ("chosen", "told"), [([None, None], None), ([0], (0, 0)), ([1, None, 3], (1, 3)), ([-4], (0, 0))]
)
def test_of_pods_that_choose_by_load_the_tokens_are_what_they_chose(
    chosen: list[int | None], told: tuple[int, int] | None
) -> None:
    tried = SpeculationStatus(num_tokens=(2, 2))
    pages = [
        PodStatus(
            ready=True,
            drafts=DraftsStatus(chosen=one),
            speculation=SpeculationStatus() if one is None else tried,
        )
        for one in chosen
    ]
    asked = DRAFT | {"numTokens": "Auto", "maxTokens": 5}
    found = reported(*pages, speculative=asked).get("numTokens")
    assert found == (None if told is None else {"min": told[0], "max": told[1]})


@pytest.mark.parametrize("numbers", ["Auto", 3])  # the pods may be of an edit before
def test_engines_that_choose_by_load_no_more_say_why(numbers: int | str) -> None:
    pages = [
        PodStatus(ready=True, scheduling="Async", drafts=DraftsStatus(off=why)) for why in ("", "a fault")
    ]
    assert reported(*pages, speculative=DRAFT | {"numTokens": numbers})["fallback"] == "a fault"
