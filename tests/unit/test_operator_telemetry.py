"""What the operator tells of itself: the page that Prometheus scrapes, the log's lines, what passes count."""

import asyncio
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from devtools import operator_names as names
from prometheus_client.parser import text_string_to_metric_families

from guided_operator.kube.api_errors import ApiError, ServerUnavailable, WriteConflict
from guided_operator.kube.lease import NotLeadingError
from guided_operator.kube.queue import Key, WorkQueue
from guided_operator.reconcile.apply import Fault
from guided_operator.reconcile.loop import ChildFaultError, Workers
from guided_operator.telemetry import logs, tracing
from guided_operator.telemetry.metrics import REASONS, OperatorMetrics

ROOT = Path(__file__).parents[2]
KEY = Key("ns", "m")


def samples(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Return what Prometheus' own parser reads on a page."""
    families = text_string_to_metric_families(text)
    return {(s.name, tuple(sorted(s.labels.items()))): s.value for f in families for s in f.samples}


def test_models_are_counted_by_condition() -> None:
    metrics, ready = OperatorMetrics(), [("Ready", "True", "PodsReady")]

    def counted() -> dict[tuple[str, ...], float]:
        return {
            tuple(dict(labels)[name] for name in ("condition", "status", "reason")): value
            for (name, labels), value in samples(metrics.page().decode()).items()
            if name == "guidedmodel_operator_resources"
        }

    metrics.condition_counts.count(KEY, ready)
    metrics.condition_counts.count(Key("ns", "other"), [*ready, ("Compatible", "True", "Supported")])
    assert counted() == {ready[0]: 2, ("Compatible", "True", "Supported"): 1}
    metrics.condition_counts.count(KEY, [("Ready", "False", "PodsNotReady")])
    metrics.condition_counts.forget(Key("ns", "other"))
    assert counted() == {("Ready", "False", "PodsNotReady"): 1}


def test_every_error_of_the_api_server_is_a_known_reason() -> None:
    """A counter whose first value is 1 has not risen, for Prometheus."""

    def errors(of: type[ApiError]) -> Iterator[str]:
        for each in of.__subclasses__():
            yield each.__name__
            yield from errors(each)

    assert set(errors(ApiError)) - {"AnswerTooLarge", "WatchExpired"} <= set(REASONS)


class Passes:
    """Stands for a reconciler: each pass ends as the next of these says."""

    def __init__(self, *ends: Exception | float | None) -> None:
        self.ends = list(ends)
        self.slept: list[float] = []
        self.metrics = OperatorMetrics()
        self.now = 100.0
        self.queue = WorkQueue(lambda: self.now)

    async def reconcile(self, _: Key) -> float | None:
        self.now += 0.2
        end = self.ends.pop(0)
        if isinstance(end, Exception):
            raise end
        return end

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        await asyncio.sleep(0)

    async def run(self) -> dict[Any, float]:
        """Make all passes, each 2 seconds after the key was due, and return what is counted."""
        workers = Workers(self.queue, self, self.metrics, clock=lambda: self.now, sleep=self.sleep)  # type: ignore[arg-type]  # stands for one
        task = asyncio.create_task(workers.work())
        async with asyncio.timeout(5):
            while self.ends:
                self.queue.add(KEY)
                self.now += 2.0
                left = len(self.ends)
                while len(self.ends) == left:  # noqa: ASYNC110 - the clock stands still meanwhile
                    await asyncio.sleep(0)
            for _ in range(10):
                await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return samples(self.metrics.page().decode())


async def test_passes_and_waits_are_counted_and_failures_by_reason() -> None:
    passes = Passes(
        None,
        ChildFaultError([Fault("NameConflict", "x")], again_s=3600.0),
        WriteConflict("y", status=409),
        NotLeadingError("z"),
        ValueError(),
    )
    counted = await passes.run()
    assert counted["guidedmodel_operator_reconcile_seconds_count", (("outcome", "done"),)] == 1
    assert counted["guidedmodel_operator_reconcile_seconds_count", (("outcome", "failed"),)] == 4
    assert counted["guidedmodel_operator_reconcile_seconds_sum", (("outcome", "failed"),)] == pytest.approx(
        0.8
    )
    errors = {
        labels[0][1]: value
        for (name, labels), value in counted.items()
        if name == "guidedmodel_operator_reconcile_errors_total" and value
    }
    assert errors == {"NameConflict": 1, "WriteConflict": 1, "NotLeadingError": 1, "Bug": 1}
    assert counted["guidedmodel_operator_queue_wait_seconds_count", ()] == 5
    assert passes.slept == [], "one resource's trouble holds nobody up"


async def test_a_model_is_looked_at_again_when_something_is_due_and_no_sooner() -> None:
    """One that came sooner would find nothing due, and come again for the rest of the time, and again."""
    passes = Passes(100.0)
    await passes.run()
    passes.now += 99.9
    assert passes.queue.depth() == 0
    passes.now += 0.1
    assert passes.queue.depth() == 1


async def test_workers_slow_down_together_while_the_api_server_is_in_trouble() -> None:
    down = ServerUnavailable("down", status=503)
    passes = Passes(*[down] * 9, None, down)
    await passes.run()
    assert passes.slept[:3] == [0.1, 0.2, 0.4]
    assert passes.slept[8] == 10.0
    assert passes.slept[9] == 0.1, "an answer ends the row"


@pytest.fixture
def record() -> logging.LogRecord:
    return logging.LogRecord(
        "guided_operator.reconcile.apply", logging.WARNING, "f", 1, 'a "%s"', ("b",), None
    )


def test_log_names_the_object_in_either_form(record: logging.LogRecord) -> None:
    with logs.about(KEY):
        text, line = logs.TextFormatter().format(record), json.loads(logs.JsonFormatter().format(record))
    assert text.endswith('WARNING guided_operator.reconcile.apply: ns/m: a "b"')
    assert (line["namespace"], line["name"], line["message"]) == ("ns", "m", 'a "b"')
    assert (line["level"], line["logger"]) == ("WARNING", "guided_operator.reconcile.apply")
    assert logs.TextFormatter().format(record).endswith('guided_operator.reconcile.apply: a "b"')
    assert "name" not in json.loads(logs.JsonFormatter().format(record))


def test_json_line_holds_an_exception_in_one_line(record: logging.LogRecord) -> None:
    try:
        int("boom")
    except ValueError as error:
        record.exc_info = (type(error), error, error.__traceback__)
    told = logs.JsonFormatter().format(record)
    assert "\n" not in told
    assert "ValueError: invalid" in json.loads(told)["exception"]


def test_the_document_holds_the_tables() -> None:
    assert names.tables() in (ROOT / "docs/telemetry.md").read_text()


def test_every_span_of_a_pass_is_documented() -> None:
    assert {one.name for one in names.SPANS} == {tracing.RECONCILE, *tracing.STEPS}
