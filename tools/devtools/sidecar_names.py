"""`python -m devtools.sidecar_names`: what the sidecar emits, as docs/telemetry.md has it.

Figures and attributes are read from the code that emits them, fed with one record of each kind.
"""

import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from guided_contract import otel_variables, tasks
from guided_contract.config import PodConfig
from guided_contract.records import (
    Decode,
    DraftTokens,
    HttpRequest,
    MatchersRestart,
    ProcessorFailure,
    ProcessorTime,
    ProcessorTimes,
)
from guided_sidecar.health.engine_state import EngineState
from guided_sidecar.health.metrics import HealthCollector
from guided_sidecar.health.probe import ProbeStatus
from guided_sidecar.health.readiness import Reading, Verdict
from guided_sidecar.socket.snapshot import ServiceSnapshot
from guided_sidecar.telemetry import conventions as c
from guided_sidecar.telemetry import record_spans
from guided_sidecar.telemetry import spans as sdk
from guided_sidecar.telemetry.metrics import SidecarMetrics
from guided_sidecar.telemetry.pipeline import CountedExporter

_TRACE: Final = "0af7651916cd43dd8448eb211c80319c"
_SPAN: Final = "b7ad6b7169203331"
_REQUEST: Final = HttpRequest(
    trace_id=_TRACE,
    span_id=_SPAN,
    start_ns=0,
    end_ns=1,
    route="/v1/completions",
    status=200,
    kind="json",
    grammar_key="key",
    model="model",
)
_DECODE: Final = Decode(
    traceparent=f"00-{_TRACE}-{_SPAN}-01",
    rank=0,
    grammar_key="key",
    backend="xgrammar",
    start_ns=0,
    end_ns=1,
)

_DRAFTS: Final = DraftTokens(engine=0, chosen=1)
_TIMES: Final = ProcessorTimes(rank=0, times=[ProcessorTime("name", 1, 0, 1)])
_FAILURE: Final = ProcessorFailure(rank=0, processors=["name"], code="sequence_processor_failed")
_RESTART: Final = MatchersRestart(rank=0)


class SpanEntry(NamedTuple):
    """A kind of span."""

    name: str
    parent: str
    covers: str
    attributes: Sequence[str]


class EventEntry(NamedTuple):
    """A kind of event."""

    name: str
    span: str
    tells: str
    attributes: Sequence[str]


class MetricEntry(NamedTuple):
    """A metric family, by the name that a query uses."""

    name: str
    kind: str
    labels: Sequence[str]
    covers: str


def spans() -> tuple[SpanEntry, ...]:
    """Return the spans of a request's trace: the sidecar's, and vLLM's own."""
    return (
        SpanEntry(
            "{method} {route}",
            "the caller's span, if any",
            "the HTTP request in the API server",
            sorted(record_spans.request_attributes(_REQUEST)),
        ),
        SpanEntry(
            "llm_request",
            "the HTTP request",
            "vLLM's own: queue, prefill and decode",
            ["gen_ai.*"],
        ),
        SpanEntry(
            c.GRAMMAR_PREPARE,
            "the HTTP request",
            "waiting for a grammar; linked to the `grammar.compile` that another request began",
            sorted((c.GRAMMAR_KIND, c.GRAMMAR_KEY, c.GRAMMAR_CACHE, c.GRAMMAR_UNENFORCED)),
        ),
        SpanEntry(
            c.GRAMMAR_COMPILE,
            c.GRAMMAR_PREPARE,
            "compile and proof in a grammar worker, and the wait for one",
            sorted(
                (
                    c.GRAMMAR_KIND,
                    c.GRAMMAR_KEY,
                    c.GRAMMAR_BACKEND,
                    c.GRAMMAR_BYTES,
                    c.GRAMMAR_COMPILE_DURATION,
                    c.GRAMMAR_PROOF_DURATION,
                )
            ),
        ),
        SpanEntry(
            c.GRAMMAR_PROOF,
            c.GRAMMAR_COMPILE,
            "the proof of a compiled grammar",
            sorted((c.GRAMMAR_BACKEND, c.GRAMMAR_KEY, c.GRAMMAR_KIND)),
        ),
        SpanEntry(
            c.GRAMMAR_LOAD,
            c.GRAMMAR_PREPARE,
            "one rank loads the compiled grammar",
            sorted((c.RANK, c.GRAMMAR_KEY, c.GRAMMAR_BACKEND)),
        ),
        SpanEntry(
            c.GUIDED_DECODE,
            "the HTTP request",
            "one guided sequence, from its first rank",
            sorted(record_spans.decode_attributes(_DECODE)),
        ),
    )


def events() -> tuple[EventEntry, ...]:
    """Return the events of spans."""
    return (EventEntry(c.WORKER_LOST, c.GRAMMAR_COMPILE, "its worker was lost", [c.WORKER_LOSS]),)


def metrics() -> tuple[MetricEntry, ...]:
    """Return the metrics of /metrics, sorted by name."""
    emitted = SidecarMetrics()
    emitted.take(_REQUEST)
    emitted.take(_DECODE)
    emitted.take(_TIMES)
    emitted.take(_DRAFTS)
    emitted.take(_FAILURE)
    emitted.take(_RESTART)
    provider = sdk.provider(Resource.get_empty(), share=0.0)
    provider.add_span_processor(emitted.spans)
    for name in sdk.MEASURED:
        sdk.end(sdk.tracer(provider).start_span(name, sdk.NEVER), error_code=c.CANCELLED)
    CountedExporter(InMemorySpanExporter(), emitted.registry)
    emitted.registry.register(HealthCollector(lambda: (_reading(), Verdict(False))))
    tasks.failures["judge"] += 0
    entries = []
    for family in emitted.registry.collect():
        labels = {label for sample in family.samples for label in sample.labels} - {"le"}
        suffix = "_total" if family.type == "counter" else ""
        entries.append(MetricEntry(family.name + suffix, family.type, sorted(labels), family.documentation))
    return tuple(sorted(entries))


def tables() -> str:
    """Return both tables, and the resource's attributes, as Markdown."""
    ours = otel_variables.resource_attributes(_config(), {"KUBERNETES_SERVICE_HOST": ""})
    described = sorted((*ours, "telemetry.sdk.*"))
    parts = (
        *_table(
            ("span", "parent", "covers", "attributes"),
            (
                (f"`{entry.name}`", _quoted_span(entry.parent), entry.covers, _quoted(entry.attributes))
                for entry in spans()
            ),
        ),
        "",
        *_table(
            ("event", "of", "means", "attributes"),
            (
                (f"`{entry.name}`", f"`{entry.span}`", entry.tells, _quoted(entry.attributes))
                for entry in events()
            ),
        ),
        "",
        f"A failed span has status ERROR and `{c.ERROR_TYPE}`: an error code, `{c.CANCELLED}`, or an HTTP",
        "status: 499 (the client disconnected), or one from 500.",
        f"Resource: {_quoted(described)},",
        "and `OTEL_RESOURCE_ATTRIBUTES`, which wins.",
        f"Schema: {c.SCHEMA_URL}.",
        "",
        "Metrics are counters (`_total`), histograms (`_seconds`) and gauges; labels in brackets.",
        "",
        *(f"- `{entry.name}`{_labels(entry)}: {entry.covers}" for entry in metrics()),
    )
    return "\n".join(parts) + "\n"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    for row in (head, ["---"] * len(head), *rows):
        yield f"| {' | '.join(row)} |"


def _labels(entry: MetricEntry) -> str:
    return f" ({_quoted(entry.labels)})" if entry.labels else ""


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _quoted_span(parent: str) -> str:
    return f"`{parent}`" if "." in parent else parent


def _config() -> PodConfig:
    return PodConfig(name="-", model="-", revision="-", tokenizer="-", served_name="-", run_dir="")


def _reading() -> Reading:
    return Reading(
        config=_config(),
        snapshot=ServiceSnapshot(),
        engine=EngineState(running=False),
        probe=ProbeStatus(state="Pending"),
    )


if __name__ == "__main__":
    sys.stdout.write(tables())
