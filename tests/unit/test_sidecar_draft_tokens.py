"""What engine cores tell of numTokens Auto, as metrics and on the status page."""

from guided_contract import records
from guided_contract.records import DraftTokens
from guided_sidecar.telemetry.metrics import SidecarMetrics


def told(*sent: DraftTokens) -> SidecarMetrics:
    metrics = SidecarMetrics()
    for record in sent:
        metrics.take(records.decode(records.encode(record)))
    return metrics


def test_the_page_has_the_latest_choice_and_metrics_every_change() -> None:
    assert told().drafts.chosen is None
    metrics = told(DraftTokens(engine=0, chosen=3, changes=1), DraftTokens(engine=0, chosen=0, changes=2))
    assert metrics.drafts.chosen == 0
    page = metrics.render().decode()
    assert 'guidedmodel_draft_tokens{engine="0"} 0.0' in page
    assert 'guidedmodel_draft_tokens_changes_total{engine="0"} 3.0' in page


def test_nothing_is_said_of_an_engine_that_chooses_no_more() -> None:
    metrics = told(
        DraftTokens(engine=0, chosen=3, changes=1), DraftTokens(engine=0, chosen=None, why="a fault")
    )
    assert (metrics.drafts.chosen, metrics.drafts.off) == (None, "a fault")
    metrics.take(DraftTokens(engine=0, chosen=1))
    assert metrics.drafts.off == ""
    metrics.take(DraftTokens(engine=0, chosen=None))
    page = metrics.render().decode()
    assert "guidedmodel_draft_tokens{" not in page
    assert 'guidedmodel_draft_tokens_changes_total{engine="0"} 1.0' in page
