"""A rank's logits processors, its real records, and what the sidecar's pages and a collector have of them."""

import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp.test_utils import unused_port
from prometheus_client.parser import text_string_to_metric_families

from guided_contract.config import LogitsProcessorConfig, PodConfig, TelemetryConfig
from guided_engine import telemetry as engine
from guided_sidecar.telemetry.pipeline import Telemetry
from support.collectors import HttpCollector, eventually
from support.engine import pod_config
from support.rank import Rank, arrival

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
PROCESSORS = [
    LogitsProcessorConfig(name="fails", factory="support.failing:FailsLater", params={"after": 2}),
    LogitsProcessorConfig(name="marks", factory="support.odd_processors:Marks", params={"mark": 5}),
]


@pytest.fixture
async def collector() -> AsyncIterator[HttpCollector]:
    made = HttpCollector(unused_port())
    await made.start()
    yield made
    await made.stop()


def work() -> list[Any]:
    """Return the records of a rank on which one of two sequences fails at its second token."""
    rank = Rank(PROCESSORS)
    other = {"logits_processors": "marks"}
    rank.step([arrival("r", None, is_guided=False)])
    rank.step([arrival("s", None, is_guided=False, arguments=other)], computed={"r": 3}, scheduled={"r": 1})
    for count in range(1, 6):
        rank.guide.edits()
        rank.sampled(r=[7], s=[8])
        rank.step(computed=dict.fromkeys("rs", 3 + count), scheduled=dict.fromkeys("rs", 1))
    rank.step(finished=["r", "s"])
    return rank.records


async def test_failures_and_times_come_from_a_rank_to_the_page_and_the_collector(
    collector: HttpCollector,
) -> None:
    with tempfile.TemporaryDirectory(prefix="gm-") as folder:  # short: a socket's path is at most 107 bytes
        pod: PodConfig = pod_config(
            Path(folder),
            telemetry=TelemetryConfig(endpoint=collector.endpoint),
            logits_processors=PROCESSORS,
        )
        telemetry = Telemetry(pod, lambda _digests: None)
        await telemetry.start()
        sender = engine.Telemetry(pod.telemetry_socket)
        for record in work():
            sender.send(record)
        sender.close()
        await eventually(lambda: telemetry.metrics.processor_failures == {"fails": 1})
        await telemetry.stop()
    figures = {
        (sample.name.removeprefix("guidedmodel_processor_"), sample.labels["processor"]): sample.value
        for family in text_string_to_metric_families(telemetry.metrics.render().decode())
        for sample in family.samples
        if "processor" in sample.labels
    }
    seconds = figures.pop(("seconds_total", "marks")), figures.pop(("seconds_total", "fails"))
    assert min(seconds) >= 0  # 0 of a few microseconds where the thread had lost its core for longer
    steps = figures.pop(("steps_total", "fails")), figures.pop(("steps_total", "marks"))
    assert figures == {
        ("failures_total", "fails"): 1,
        ("steps_over_budget_total", "fails"): 0,
        ("steps_over_budget_total", "marks"): 0,
    }
    assert steps == (3, 5)
