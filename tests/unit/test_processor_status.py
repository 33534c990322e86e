"""How logits processors are, from what a sidecar knows to the status of their model."""

import dataclasses
import datetime as dt
from pathlib import Path
from typing import Any

from guided_contract import status
from guided_contract.config import LogitsProcessorConfig
from guided_contract.status import PodStatus, ProcessorStatus
from guided_contract.wire import Hello
from guided_operator.reconcile.report import make_status
from guided_operator.watch.sidecar_status import Page
from guided_sidecar.health.heartbeats import EngineState
from guided_sidecar.health.probe import ProbeStatus
from guided_sidecar.health.readiness import Reading, judge
from guided_sidecar.health.status_page import page
from guided_sidecar.socket.snapshot import ServiceSnapshot
from support.engine import pod_config
from support.observed import applied, model, pod, revision_of, seen, situation

NOW = dt.datetime(2026, 11, 25, 12, tzinfo=dt.UTC)


def told(connected: int, failures: dict[str, int] | None = None) -> PodStatus:
    """Return the page of a pod of two ranks, of which some are connected, as another process reads it."""
    ranks = [Hello(role="rank", pid=2, boot="b", rank=rank, samples=True) for rank in range(connected)]
    processors = [LogitsProcessorConfig(name=name, factory="a.b:C") for name in ("ban", "dry")]
    reading = Reading(
        config=pod_config(Path("/nowhere"), model="/m", tensor_parallel=2, logits_processors=processors),
        snapshot=ServiceSnapshot(
            hellos=(Hello(role="launcher", pid=1, boot="b"), *ranks), expected_ranks=range(2)
        ),
        engine=EngineState(running=True),
        probe=ProbeStatus(state="Passed"),
        processor_failures=failures or {},
    )
    return status.decode(status.encode(page(reading, judge(reading))))


def test_a_page_says_whether_all_ranks_have_made_a_factory_and_what_ended_for_it() -> None:
    assert told(1).logits_processors == [
        ProcessorStatus(name="ban", state="Pending"),
        ProcessorStatus(name="dry", state="Pending"),
    ]
    assert told(2, {"dry": 3}).logits_processors == [
        ProcessorStatus(name="ban", state="Loaded"),
        ProcessorStatus(name="dry", state="Loaded", failures=3),
    ]


def reported(*pages: PodStatus, names: tuple[str, ...] = ("ban", "dry"), **of_pods: Any) -> dict[str, Any]:
    """Return what a model's status says, whose pods have these pages."""
    raw = model(logitsProcessors=[{"name": name, "factory": "a.b:C"} for name in names])
    pods = tuple(pod(f"p{number}", revision_of(raw), **of_pods) for number in range(len(pages)))
    read = {one.uid: Page(each) for one, each in zip(pods, pages, strict=True)}
    observed = dataclasses.replace(applied(seen(raw)), pods=pods, pages=read)
    made: dict[str, Any] = make_status(situation(observed), NOW).logits_processors.model_dump()
    return made


def test_a_status_sums_over_pods_and_one_that_is_behind_counts() -> None:
    assert reported(told(2, {"ban": 2}), told(2, {"ban": 1, "dry": 7})) == {
        "loaded": 2,
        "pending": 0,
        "worst": [
            {"name": "dry", "state": "Loaded", "failures": 7},
            {"name": "ban", "state": "Loaded", "failures": 3},
        ],
    }
    assert reported(told(2), told(1))["pending"] == 2


def test_nodes_of_one_replica_tell_of_the_same_sequences() -> None:
    worst = reported(told(2, {"ban": 2}), told(2, {"ban": 3}), group="g")["worst"]
    assert worst[0] == {"name": "ban", "state": "Loaded", "failures": 3}


def test_what_no_pod_has_told_of_is_pending() -> None:
    assert reported()["pending"] == reported(PodStatus(ready=True))["pending"] == 2


def test_pages_that_lie_are_counted_within_bounds() -> None:
    lie = PodStatus(
        ready=True,
        logits_processors=[
            ProcessorStatus(name="ban", state="Loaded", failures=(1 << 63) - 1),
            ProcessorStatus(name="dry", state="Loaded", failures=-5),
            *(ProcessorStatus(name=f"other-{number}", state="Loaded") for number in range(100)),
        ],
    )
    found = reported(lie, lie)
    assert found["loaded"] == len(found["worst"]) == 2
    assert found["worst"][0]["failures"] == (1 << 31) - 1
    assert found["worst"][1]["failures"] == 0


def test_of_many_the_worst_are_listed() -> None:
    names = tuple(f"p{number:02}" for number in range(16))
    processors = [
        ProcessorStatus(name=name, state="Loaded" if number else "Pending", failures=number)
        for number, name in enumerate(names)
    ]
    found = reported(PodStatus(ready=True, logits_processors=processors), names=names)
    assert (found["loaded"], found["pending"]) == (15, 1)
    assert [each["name"] for each in found["worst"]] == [
        *("p00", "p15", "p14", "p13", "p12", "p11", "p10", "p09")
    ]
