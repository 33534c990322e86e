"""What the operator tells of itself: the page that Prometheus scrapes, the log's lines, what passes count."""

import asyncio
import itertools
import json
import logging
import math
from pathlib import Path

import pytest
from devtools import operator_names as names
from prometheus_client.parser import text_string_to_metric_families

from guided_operator.kube.api_errors import WriteConflict
from guided_operator.kube.key import Key
from guided_operator.kube.lease import NotLeadingError
from guided_operator.reconcile.apply import Fault
from guided_operator.reconcile.loop import ChildFaultError, Loops
from guided_operator.telemetry import logs
from guided_operator.telemetry.metrics import OperatorMetrics, Replicas
from support.played import played

KEY = Key("ns", "m")
ONE = Replicas("r", desired=1, ready=1, updated=1, starting=0, start_s=0.0)


def test_models_are_counted_by_condition() -> None:
    metrics, ready = OperatorMetrics(), [("Ready", "True", "PodsReady")]

    def counted() -> dict[tuple[str, ...], float]:
        families = text_string_to_metric_families(metrics.page().decode())
        found = [s for f in families for s in f.samples if s.name == "guidedmodel_operator_resources"]
        return {tuple(s.labels[name] for name in ("condition", "status", "reason")): s.value for s in found}

    metrics.models.count(KEY, ready, ONE)
    metrics.models.count(Key("ns", "other"), [*ready, ("Compatible", "True", "Supported")], ONE)
    assert counted() == {ready[0]: 2, ("Compatible", "True", "Supported"): 1}
    metrics.models.count(KEY, [("Ready", "False", "PodsNotReady")], ONE)
    metrics.models.forget(Key("ns", "other"))
    assert counted() == {("Ready", "False", "PodsNotReady"): 1}


class Passes:
    """Stands for a reconciler: each pass ends as the next of these says, and takes 0.2 seconds."""

    def __init__(self, *ends: Exception | float | None) -> None:
        self.ends = list(ends)
        self.began_s: list[float] = []
        self.metrics = OperatorMetrics()
        self.observer = self
        self.news = False  # of its pods' pages
        self.page_s = math.inf
        self.loops = Loops(self, self.metrics, 16, asyncio.get_running_loop().time)  # type: ignore[arg-type]  # stands for one
        self.loops.begin()

    async def prepare(self, _: Key) -> bool:
        return self.news

    def due_s(self, _: Key) -> float:
        return self.page_s

    async def reconcile(self, _: Key) -> float | None:
        self.began_s.append(asyncio.get_running_loop().time())
        await asyncio.sleep(0.2)
        end = self.ends.pop(0)
        if isinstance(end, Exception):
            raise end
        return end

    def value(self, name: str, **labels: str) -> float | None:
        return self.metrics.registry.get_sample_value(f"guidedmodel_operator_reconcile_{name}", labels)


@played
async def test_passes_and_waits_are_counted_and_failures_by_reason() -> None:
    passes = Passes(
        ChildFaultError([Fault("NameConflict", "x")], again_s=3600.0),
        WriteConflict("y", status=409),
        NotLeadingError("z"),
        ValueError(),
        None,
    )
    passes.loops.wake(KEY)
    await asyncio.sleep(60)
    assert passes.value("seconds_count", outcome="done") == 1
    assert passes.value("seconds_count", outcome="failed") == 4
    assert passes.value("seconds_sum", outcome="failed") == pytest.approx(0.8)
    for reason in ("NameConflict", "WriteConflict", "NotLeadingError", "Bug"):
        assert passes.value("errors_total", reason=reason) == 1
    waits = [after - before - 0.2 for before, after in itertools.pairwise(passes.began_s)]
    assert waits == pytest.approx([0.5, 1.0, 2.0, 4.0]), "longer each time"


@played
async def test_a_model_is_looked_at_again_when_something_is_due_and_no_sooner() -> None:
    passes = Passes(100.0, None)
    passes.loops.wake(KEY)
    await asyncio.sleep(100.3)
    assert len(passes.began_s) == 1
    await asyncio.sleep(1)
    assert len(passes.began_s) == 2
    assert not passes.loops._woken, "of a model that is gone nothing is left"


@played
async def test_changes_that_come_together_are_one_pass_and_what_comes_during_it_another() -> None:
    passes = Passes(100.0, 100.0)
    for _ in range(3):
        passes.loops.wake(KEY)
        await asyncio.sleep(0.05)
    assert passes.loops.depth() == 1
    await asyncio.sleep(0.1)
    passes.loops.wake(KEY)
    await asyncio.sleep(5)
    assert len(passes.began_s) == 2


@played
async def test_a_page_that_is_due_makes_a_pass_only_where_it_says_something_else() -> None:
    passes = Passes(100.0, 100.0)
    passes.page_s = 5.0
    passes.loops.wake(KEY)
    await asyncio.sleep(20)
    assert len(passes.began_s) == 1
    passes.news = True
    await asyncio.sleep(5)
    assert len(passes.began_s) == 2


def logged(form: logs.LogFormat) -> str:
    name = "guided_operator.reconcile.apply"
    record = logging.LogRecord(name, logging.WARNING, "f", 1, 'a "%s"', ("b",), None)
    handler = logs.handler(form)
    assert handler.filter(record)
    return handler.format(record)


def test_log_names_the_object_in_either_form() -> None:
    with logs.about(KEY):
        text, line = logged("text"), json.loads(logged("json"))
    assert text.endswith('WARNING guided_operator.reconcile.apply: ns/m: a "b"')
    assert (line["namespace"], line["name"], line["message"]) == ("ns", "m", 'a "b"')
    assert (line["level"], line["logger"]) == ("WARNING", "guided_operator.reconcile.apply")
    assert logged("text").endswith('guided_operator.reconcile.apply: a "b"')
    assert "name" not in json.loads(logged("json"))


def test_the_document_holds_the_tables() -> None:
    assert names.tables() in (Path(__file__).parents[2] / "docs/telemetry.md").read_text()
