"""What vLLM's spans get on their way through: as if the request had been parsed, and at no such cost."""

import gzip
import tracemalloc
from typing import Any

import pytest
from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes as gen_ai

from guided_sidecar.telemetry import otlp_receiver
from guided_sidecar.telemetry.otlp_resources import UnreadableError, described

OURS = {"service.name": "guidedmodel", "k8s.pod.name": "p"}


def request(*groups: dict[str, str], spans: int = 2) -> ExportTraceServiceRequest:
    """Return a request with such attributes of each resource, and spans that hold more."""
    message = ExportTraceServiceRequest()
    for number, attributes in enumerate(groups):
        group = message.resource_spans.add(schema_url="https://example.org/1")
        for key, value in attributes.items():
            group.resource.attributes.add(key=key).value.string_value = value
        for _ in range(2):
            scope = group.scope_spans.add(schema_url="https://example.org/2")
            scope.scope.name = "s"
            for index in range(spans):
                span = scope.spans.add(name=f"{number} {index}", trace_id=b"t" * 16, start_time_unix_nano=7)
                span.attributes.add(key="n").value.int_value = index
                span.events.add(name="e" * 200)
    return message


def with_attributes(message: ExportTraceServiceRequest) -> list[dict[str, str]]:
    return [
        {item.key: item.value.string_value for item in group.resource.attributes}
        for group in message.resource_spans
    ]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([], []),
        ([{}], [OURS]),
        ([{"service.name": "vllm"}], [{"service.name": "vllm", "k8s.pod.name": "p"}]),
        ([{"service.name": "unknown_service:python"}], [OURS]),
        ([{"a": "b"}, {"k8s.pod.name": "q"}], [{"a": "b", **OURS}, {**OURS, "k8s.pod.name": "q"}]),
    ],
)
def test_a_resource_gets_what_it_lacks_and_nothing_else_changes(
    given: list[dict[str, str]], expected: list[dict[str, str]]
) -> None:
    message = request(*given)
    body, spans = described(message.SerializeToString(), OURS)
    changed = ExportTraceServiceRequest.FromString(body)
    assert with_attributes(changed) == expected
    assert spans == 4 * len(given)
    for group in (*message.resource_spans, *changed.resource_spans):
        group.ClearField("resource")
    assert changed == message


def one_span(*attributes: str, kind: Span.SpanKind = Span.SPAN_KIND_SERVER) -> ExportTraceServiceRequest:
    message = ExportTraceServiceRequest()
    span = message.resource_spans.add().scope_spans.add().spans.add(name="llm_request", kind=kind)
    for number, name in enumerate(attributes):
        span.attributes.add(key=name).value.int_value = number
    return message


def forwarded(message: ExportTraceServiceRequest) -> Span:
    body, count = described(message.SerializeToString(), OURS)
    assert count == 1
    return ExportTraceServiceRequest.FromString(body).resource_spans[0].scope_spans[0].spans[0]


def test_vllms_span_is_inside_ours_and_has_the_names_of_today() -> None:
    from vllm.tracing import SpanAttributes

    names = [name for key, name in vars(SpanAttributes).items() if key.startswith("GEN_AI")]
    span = forwarded(one_span(*names))
    assert span.kind == Span.SPAN_KIND_INTERNAL
    told = {item.key for item in span.attributes}
    assert {gen_ai.GEN_AI_USAGE_INPUT_TOKENS, gen_ai.GEN_AI_USAGE_OUTPUT_TOKENS} <= told
    assert not told & {gen_ai.GEN_AI_USAGE_PROMPT_TOKENS, gen_ai.GEN_AI_USAGE_COMPLETION_TOKENS}


@pytest.mark.parametrize("kind", [Span.SPAN_KIND_INTERNAL, Span.SPAN_KIND_CLIENT, Span.SPAN_KIND_PRODUCER])
def test_other_spans_go_on_as_they_came(kind: Span.SpanKind) -> None:
    both = ("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens")
    message = one_span(*both, "x", kind=kind)
    assert forwarded(message) == message.resource_spans[0].scope_spans[0].spans[0]


def test_a_resource_in_two_parts_is_one() -> None:
    parts = [request({"a": "1"}, spans=0), request({"b": "2"}, spans=0)]
    resource = b"".join(
        b"\x0a" + bytes([len(one)]) + one
        for one in (part.resource_spans[0].resource.SerializeToString() for part in parts)
    )
    body, _ = described(b"\x0a" + bytes([len(resource)]) + resource, {})
    [found] = with_attributes(ExportTraceServiceRequest.FromString(body))
    assert found == {"a": "1", "b": "2"}


@pytest.mark.parametrize(
    "body", [b"garbage", b"\x0a", b"\x0a\x05abc", b"\x0a\x03\x0a\x01\x07", b"\x0a" + b"\xff" * 11]
)
def test_what_is_no_request_is_refused(body: bytes) -> None:
    with pytest.raises(UnreadableError):
        described(body, OURS)


def _inside(levels: int, size: int) -> bytes:
    """Return nothing but empty messages, so many levels inside a request, as field 2 of the inner ones."""
    body = (b"\x0a" if levels == 1 else b"\x12") + b"\x00"
    body *= size // 2
    for level in range(levels - 1, 0, -1):
        head, length = bytearray(b"\x0a" if level == 1 else b"\x12"), len(body)
        while length > 0x7F:
            head.append(length & 0x7F | 0x80)
            length >>= 7
        body = bytes([*head, length]) + body
    return body


@pytest.mark.parametrize("levels", [1, 2, 3, 4, 5])
def test_four_mib_of_empty_messages_cost_little_memory(levels: int) -> None:
    """Parsed, they took up to 850 MiB, and the event loop 16 s."""
    body = _inside(levels, otlp_receiver.BODY_BYTES - 64)
    tracemalloc.start()
    try:
        described(body, OURS)
    except UnreadableError:
        assert levels <= 3
    else:
        assert levels > 3, "as one span, whatever it holds"
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 4 * otlp_receiver.BODY_BYTES


def test_many_spans_are_taken_and_more_are_not() -> None:
    assert described(request({}, spans=8000).SerializeToString(), {})[1] == 16_000
    with pytest.raises(UnreadableError, match="more than 32768 spans"):
        described(request({}, spans=17_000).SerializeToString(), {})
    with pytest.raises(UnreadableError, match="more than 64 resources"):
        described(request(*[{}] * 65).SerializeToString(), {})


def _packed(body: bytes) -> bytes:
    """Pack without the time, so that every worker of pytest-xdist collects the same names."""
    return gzip.compress(body, mtime=0)


@pytest.mark.parametrize(
    ("packed", "refusal"),
    [
        (_packed(b"x"), None),
        (_packed(b"x" * otlp_receiver.BODY_BYTES), None),
        (_packed(b"x" * (otlp_receiver.BODY_BYTES + 1)), web.HTTPRequestEntityTooLarge),
        (_packed(bytes(64 << 20)), web.HTTPRequestEntityTooLarge),
        (_packed(b"x")[:-3], web.HTTPBadRequest),
        (_packed(b"x") * 2, web.HTTPBadRequest),
        (_packed(b"x") + b"?", web.HTTPBadRequest),
        (b"x", web.HTTPBadRequest),
        (b"", web.HTTPBadRequest),
    ],
)
def test_gzip_is_one_stream_of_bounded_size(packed: bytes, refusal: Any) -> None:
    if refusal is None:
        assert otlp_receiver._inflate(packed, "gzip") == gzip.decompress(packed)
    else:
        with pytest.raises(refusal):
            otlp_receiver._inflate(packed, "gzip")
