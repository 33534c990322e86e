"""How logits processors are, from what a sidecar knows to the status of their model."""

import dataclasses
import datetime as dt
from pathlib import Path

import pytest

from guided_contract import status
from guided_contract.config import LogitsProcessorConfig
from guided_contract.status import PodStatus, ProcessorStatus
from guided_contract.wire import Hello
from guided_operator.reconcile.report import make_status
from guided_operator.watch.sidecar_status import Page
from guided_sidecar.health.engine_state import EngineState
from guided_sidecar.health.probe import ProbeStatus
from guided_sidecar.health.readiness import Reading, judge
from guided_sidecar.health.status_page import page
from guided_sidecar.socket.snapshot import ServiceSnapshot
from support.engine import pod_config
from support.observed import applied, model, pod, revision_of, seen, situation

NOW = dt.datetime(2026, 11, 25, 12, tzinfo=dt.UTC)


NAMES = ("ban", "dry")
OTHERS = PodStatus(
    ready=True, logits_processors=[ProcessorStatus(name=f"other-{n}", state="Loaded") for n in range(100)]
)


def told(connected: int, failures: dict[str, int] | None = None) -> PodStatus:
    """Return the page of a pod of two ranks, of which some are connected, as another process reads it."""
    ranks = [Hello(role="rank", pid=2, boot="b", rank=rank, samples=True) for rank in range(connected)]
    processors = [LogitsProcessorConfig(name=name, factory="a.b:C") for name in NAMES]
    hellos = (Hello(role="launcher", pid=1, boot="b"), *ranks)
    reading = Reading(
        config=pod_config(Path("/nowhere"), model="/m", tensor_parallel=2, logits_processors=processors),
        snapshot=ServiceSnapshot(hellos=hellos, expected_ranks=range(2)),
        engine=EngineState(running=True),
        probe=ProbeStatus(state="Passed"),
        processor_failures=failures or {},
    )
    return status.decode(status.encode(page(reading, judge(reading))))


def test_a_page_says_whether_all_ranks_have_made_a_factory_and_what_ended_for_it() -> None:
    assert told(1).logits_processors == [ProcessorStatus(name=name, state="Pending") for name in NAMES]
    ban, dry = told(2, {"dry": 3}).logits_processors
    assert ban == ProcessorStatus(name="ban", state="Loaded")
    assert dry == ProcessorStatus(name="dry", state="Loaded", failures=3)


@pytest.mark.parametrize(
    ("pages", "counts"),
    [
        ([told(2), told(2)], {"loaded": 2, "pending": 0}),
        ([told(2), told(1)], {"loaded": 0, "pending": 2}),  # one pod that is behind counts
        ([], {"loaded": 0, "pending": 2}),  # no pod has told of them
        ([OTHERS], {"loaded": 0, "pending": 2}),  # what nobody asked for is not counted
    ],
)
def test_a_models_status_counts_what_all_its_pods_have(
    pages: list[PodStatus], counts: dict[str, int]
) -> None:
    raw = model(logitsProcessors=[{"name": name, "factory": "a.b:C"} for name in NAMES])
    pods = tuple(pod(f"p{number}", revision_of(raw)) for number in range(len(pages)))
    read = {one.uid: Page(each) for one, each in zip(pods, pages, strict=True)}
    observed = dataclasses.replace(applied(seen(raw)), pods=pods, pages=read)
    assert make_status(situation(observed), NOW).logits_processors.model_dump() == counts
