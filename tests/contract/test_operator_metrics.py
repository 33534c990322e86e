"""The operator's /metrics and alerts as Prometheus' own engine reads them."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from devtools import golang
from devtools import operator_names as names

from guided_operator.telemetry.metrics import OperatorMetrics, Sources
from support.cluster import unavailable
from support.promql import Scrape, evaluate

ALERTS = Path(__file__).parents[2] / "manifests/observability/operator-alerts.yaml"
RULES: dict[str, str] = {
    rule["alert"]: rule["expr"]
    for group in yaml.safe_load(ALERTS.read_text())["spec"]["groups"]
    for rule in group["rules"]
}
TARGET = {"namespace": "guidedmodel-system", "pod": "operator-0", "job": "guidedmodel-operator"}
# For each alert what differs from a healthy operator.
SICK: dict[str, dict[str, Any]] = {
    "GuidedModelOperatorHasNoLeader": {"leads": False},
    "GuidedModelOperatorPassesFail": {"failures": {"NameConflict": 5}},
    "GuidedModelOperatorHasABug": {"failures": {"Bug": 1}},
    "GuidedModelOperatorQueueGrows": {"depth": 40},
    "GuidedModelOperatorIsBlind": {"forbidden": 1},
    "GuidedModelOperatorDoesNotConverge": {"unsettled": 1},
}


@pytest.fixture(scope="module", autouse=True)
def _promql() -> None:
    try:
        golang.promql()
    except golang.MissingToolError as error:
        unavailable(error)


def rendered(times: int, **state: Any) -> str:
    """Return the page of an operator that has lived through its state so many times."""
    metrics = OperatorMetrics()
    metrics.attach(
        Sources(
            queue_depth=lambda: state.get("depth", 0),
            leads=lambda: state.get("leads", True),
            unsettled=lambda: state.get("unsettled", 0) * times,
            forbidden=lambda: {"Pod": state.get("forbidden", 0), "Service": 0},
            watch_failures=lambda: {"Pod": 0},
        )
    )
    for reason, count in {"WriteConflict": 50, **state.get("failures", {})}.items():
        metrics.errors.labels(reason).inc(count * times)
    for _ in range(100 * times):
        metrics.passes.labels("done").observe(0.01)
    return metrics.page().decode()


def firing(**state: Any) -> set[str]:
    """Return the alerts whose condition holds after ten minutes in a state."""
    scrapes = [Scrape(200.0 * times, rendered(times, **state), labels=TARGET) for times in range(4)]
    answers = evaluate(scrapes, list(RULES.values()), 600.0)
    documented = {metric.name: {*metric.labels} for metric in names.families()}
    for metric, labels in (read for answer in answers for read in answer.reads):
        assert metric in documented
        assert set(labels) <= documented[metric] | set(TARGET)
    return {alert for alert, answer in zip(RULES, answers, strict=True) if answer.series}


def test_healthy_operator_raises_no_alert() -> None:
    assert firing() == set()


@pytest.mark.parametrize("alert", SICK)
def test_each_alert_is_raised_by_its_state_and_no_other(alert: str) -> None:
    assert firing(**SICK[alert]) == {alert}


def test_every_alert_has_its_state_here() -> None:
    assert set(SICK) == set(RULES)
