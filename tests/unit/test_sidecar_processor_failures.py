"""What the sidecar tells of sequences that ended for their logits processors."""

from typing import Any

from guided_contract.config import LogitsProcessorConfig
from guided_contract.records import ProcessorFailure, encode
from guided_sidecar.telemetry.metrics import SidecarMetrics
from support.spans import MemorySpans, attributes, error_code, parent_id, telemetry, trace_id

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
CONFIGS = [LogitsProcessorConfig(name=name, factory=f"acme:{name.title()}") for name in ("ban", "dry")]


def failure(**changes: Any) -> ProcessorFailure:
    fields: dict[str, Any] = {
        "traceparent": f"00-{TRACE}-{SPAN}-01",
        "rank": 0,
        "processors": ["ban"],
        "code": "sequence_processor_no_token",
        "token": 4,
        "time_ns": 5,
    }
    return ProcessorFailure(**fields | changes)


def taken(*records: ProcessorFailure) -> tuple[MemorySpans, SidecarMetrics]:
    """Return the spans that a sidecar of two ranks makes of records, and its metrics; it begins no trace."""
    spans, metrics = MemorySpans(share=0.0), SidecarMetrics(2)
    receiver = telemetry(spans, metrics, tensor_parallel=2, logits_processors=CONFIGS)
    for record in records:
        receiver.take(encode(record))
    return spans, metrics


def test_a_span_names_processor_factory_and_token() -> None:
    [span] = taken(failure(error_type="ValueError"))[0].finished
    assert (trace_id(span), parent_id(span), error_code(span)) == (
        TRACE,
        SPAN,
        "sequence_processor_no_token",
    )
    told = attributes(span)
    assert (told["guidedmodel.processor.name"], told["guidedmodel.processor.factory"]) == ("ban", "acme:Ban")
    assert (told["guidedmodel.processor.token"], told["exception.type"]) == (4, "ValueError")


def test_a_sequence_is_counted_once_as_the_first_of_its_ranks_tells_of_it() -> None:
    spans, metrics = taken(
        failure(),
        failure(rank=1),
        failure(rank=2),  # another engine core's sequence, which may have the same name
        failure(processors=["ban", "dry"]),
    )
    assert metrics.processor_failures == {"ban": 3, "dry": 1}
    assert [attributes(span)["guidedmodel.processor.name"] for span in spans.finished] == [
        *("ban", "ban", "ban,dry")
    ]


def test_a_request_without_a_trace_has_one_of_its_own() -> None:
    [span] = taken(failure(traceparent=None))[0].finished
    assert parent_id(span) is None


def test_what_a_request_decided_about_its_trace_holds() -> None:
    spans, metrics = taken(failure(traceparent=f"00-{TRACE}-{SPAN}-00"))
    assert spans.finished == []
    assert metrics.processor_failures == {"ban": 1}
