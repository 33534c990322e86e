"""`python -m devtools.operator_names` prints what docs/telemetry.md says of the operator itself."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from guided_contract import tasks
from guided_operator.kube.key import Key
from guided_operator.telemetry import tracing
from guided_operator.telemetry.metrics import OperatorMetrics, Replicas, Sources

_OF_THE_CLIENT: Final = "process_"


class SpanEntry(NamedTuple):
    """A kind of span."""

    name: str
    parent: str
    covers: str
    attributes: Sequence[str] = ()


SPANS: Final = (
    SpanEntry(
        tracing.RECONCILE,
        "none",
        "one reconciliation of a GuidedModel",
        sorted((tracing.MODEL_NAME, tracing.MODEL_NAMESPACE, tracing.QUEUE_WAIT)),
    ),
    SpanEntry(
        "observe", tracing.RECONCILE, "reading the model, its grammars' ConfigMaps, its sidecars' pages"
    ),
    SpanEntry("plan", tracing.RECONCILE, "computing the children"),
    SpanEntry("apply", tracing.RECONCILE, "writing children that differ"),
    SpanEntry("report", tracing.RECONCILE, "writing status and events that differ"),
)


def metrics() -> OperatorMetrics:
    """Return metrics of an operator that has seen one of everything, so that each family shows its labels."""
    made = OperatorMetrics()
    made.attach(Sources(lambda: 0, lambda: False, lambda: 0, *[lambda: {"Pod": 0}] * 3))
    tasks.failures["informers"] += 0
    made.requests.labels("GET", "200").inc()
    seen = Replicas("r", desired=1, ready=1, updated=1, starting=0, start_s=0.0)
    made.models.count(Key("ns", "m"), [("Ready", "True", "PodsReady")], seen)
    return made


class MetricEntry(NamedTuple):
    """A metric family, under the name that queries use."""

    name: str
    kind: str
    labels: Sequence[str]
    counts: str


def families() -> list[MetricEntry]:
    """Return every metric family, by name."""
    made = []
    for family in metrics().registry.collect():
        name = f"{family.name}_total" if family.type == "counter" else family.name
        labels = dict.fromkeys(label for sample in family.samples for label in sample.labels if label != "le")
        made.append(MetricEntry(name, family.type, tuple(labels), family.documentation))
    return sorted(made)


def tables() -> str:
    """Return both tables as Markdown."""
    spans = (
        (
            f"`{one.name}`",
            f"`{one.parent}`" if one.parent == tracing.RECONCILE else one.parent,
            one.covers,
            _listed(one.attributes),
        )
        for one in SPANS
    )
    parts = (
        *_table(("span", "parent", "covers", "attributes"), spans),
        "",
        f"A failed one has status ERROR and `{tracing.ERROR_TYPE}`, the reason of the metrics. Resource:",
        f"`service.name` `{tracing.SERVICE}`, `service.instance.id`, `k8s.pod.name`.",
        "",
        *(
            f"- `{one.name}`{_labels(one)}: {one.counts}"
            for one in families()
            if not one.name.startswith(_OF_THE_CLIENT)
        ),
        f"- `{_OF_THE_CLIENT}*`: CPU time, memory and open files, by prometheus_client",
    )
    return "\n".join(parts) + "\n"


def _labels(entry: MetricEntry) -> str:
    return f" ({_listed(entry.labels)})" if entry.labels else ""


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    for row in (head, ["---"] * len(head), *rows):
        yield f"| {' | '.join(row)} |"


if __name__ == "__main__":
    sys.stdout.write(tables())
