"""What the sidecar tells of sequences that ended for their logits processors."""

from typing import Any

import pytest

from guided_contract.config import LogitsProcessorConfig
from guided_contract.records import ProcessorFailure, ProcessorTime, ProcessorTimes
from guided_sidecar.telemetry.metrics import SidecarMetrics
from guided_sidecar.telemetry.record_spans import ProcessorFailures
from support.spans import MemorySpans, attributes, error_code, parent_id, trace_id

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
CONFIGS = [LogitsProcessorConfig(name=name, factory=f"acme:{name.title()}") for name in ("ban", "dry")]


def failure(**changes: Any) -> ProcessorFailure:
    fields: dict[str, Any] = {
        "request_id": "r",
        "traceparent": f"00-{TRACE}-{SPAN}-01",
        "rank": 0,
        "processors": ["ban"],
        "code": "sequence_processor_no_token",
        "token": 4,
        "time_ns": 5,
    }
    return ProcessorFailure(**fields | changes)


@pytest.fixture
def spans() -> MemorySpans:
    return MemorySpans(share=0.0)


@pytest.fixture
def failures(spans: MemorySpans) -> ProcessorFailures:
    return ProcessorFailures(CONFIGS, 2, spans.tracer)


def test_a_span_names_processor_factory_and_token(spans: MemorySpans, failures: ProcessorFailures) -> None:
    failures.take(failure(error_type="ValueError"))
    [span] = spans.finished
    assert (trace_id(span), parent_id(span), error_code(span)) == (
        TRACE,
        SPAN,
        "sequence_processor_no_token",
    )
    told = attributes(span)
    assert (told["guidedmodel.processor.name"], told["guidedmodel.processor.factory"]) == ("ban", "acme:Ban")
    assert (told["guidedmodel.processor.token"], told["exception.type"]) == (4, "ValueError")


def test_a_sequence_is_counted_once_whatever_ranks_tell_of_it(
    spans: MemorySpans, failures: ProcessorFailures
) -> None:
    for record in (
        failure(),
        failure(rank=1),
        failure(rank=2),  # another engine core's sequence, which may have the same name
        failure(request_id="s", processors=["ban", "dry"]),
    ):
        failures.take(record)
    assert failures.counts == {"ban": 3, "dry": 1}
    assert [attributes(span)["guidedmodel.processor.name"] for span in spans.finished] == [
        *("ban", "ban", "ban,dry")
    ]


def test_a_request_without_a_trace_has_one_of_its_own(
    spans: MemorySpans, failures: ProcessorFailures
) -> None:
    failures.take(failure(traceparent=None))
    [span] = spans.finished
    assert parent_id(span) is None


def test_what_a_request_decided_about_its_trace_holds(
    spans: MemorySpans, failures: ProcessorFailures
) -> None:
    failures.take(failure(traceparent=f"00-{TRACE}-{SPAN}-00"))
    assert spans.finished == []
    assert failures.counts == {"ban": 1}


def test_words_that_are_not_ours_reach_neither_spans_nor_labels(
    spans: MemorySpans, failures: ProcessorFailures
) -> None:
    metrics = SidecarMetrics(2, processors=["ban", "dry"])
    strange = failure(processors=["a\nb", "dry"], code="no code")
    failures.take(strange)
    metrics.take(strange)
    metrics.take(ProcessorTimes(rank=3, times=[ProcessorTime("c d", 1, 1, 1)]))
    [span] = spans.finished
    assert (attributes(span)["guidedmodel.processor.name"], error_code(span)) == ("dry", "other")
    page = metrics.render().decode()
    assert 'processor_failures_total{error_code="other",processor="other",rank="0",tp_rank="0"} 1.0' in page
    assert 'processor_steps_over_budget_total{processor="other",rank="3"} 1.0' in page


def test_what_is_remembered_is_bounded(failures: ProcessorFailures) -> None:
    for number in range(5000):
        failures.take(failure(request_id=f"r{number}"))
    assert failures.counts == {"ban": 5000}
    assert len(failures._seen) <= 1024
