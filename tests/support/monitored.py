"""Models' pods and operators that Prometheus scrapes over played time; their own code renders each page."""

import dataclasses
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import yaml
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from guided_contract import names
from guided_contract.records import AnyRecord, Decode, HttpRequest
from guided_contract.wire import Hello
from guided_operator.api import parse
from guided_operator.builders.children import after_pods
from guided_operator.builders.pod import pod_template
from guided_operator.kube.key import Key
from guided_operator.kube.pod_view import ContainerView, PodView
from guided_operator.reconcile.tally import replicas
from guided_operator.telemetry.metrics import OperatorMetrics, Sources
from guided_sidecar.grammar.pool.workers import Loss, WorkersState
from guided_sidecar.health.engine_state import EngineState
from guided_sidecar.health.metrics import HealthCollector
from guided_sidecar.health.probe import ProbeStatus
from guided_sidecar.health.readiness import Reading, Verdict
from guided_sidecar.socket.snapshot import ServiceSnapshot
from guided_sidecar.telemetry.metrics import SidecarMetrics
from guided_sidecar.telemetry.pipeline import CountedExporter
from support.engine import pod_config
from support.observed import SITE, applied, model, pod, revision_of, seen, situation
from support.promql import Firing, Scrape, alerts
from support.scraping import discovered, endpoints, relabel_configs

MANIFESTS: Final = Path(__file__).parents[2] / "manifests/observability"
STEP_S: Final = 30  # the PodMonitors' interval, and Prometheus' own for rules
Object = Mapping[str, Any]


def observability(name: str) -> Object:
    """Return a manifest of manifests/observability."""
    found: Object = yaml.safe_load((MANIFESTS / f"{name}.yaml").read_text())
    return found


def groups() -> list[Object]:
    """Return all groups of our alerts, as they stand in their files."""
    return [
        group for name in ("alerts", "operator-alerts") for group in observability(name)["spec"]["groups"]
    ]


def request(status: int = 200, code: str | None = None, **changes: Any) -> HttpRequest:
    """Return the record of an HTTP request."""
    fields: dict[str, Any] = {
        "trace_id": "0af7651916cd43dd8448eb211c80319c",
        "span_id": "b7ad6b7169203331",
        "start_ns": 0,
        "end_ns": 300_000_000,
        "route": "/v1/completions",
        "kind": "json",
    }
    return HttpRequest(status=status, error_code=code, **fields | changes)


def decode(**changes: Any) -> Decode:
    """Return the record of a guided sequence."""
    fields: dict[str, Any] = {
        "traceparent": None,
        "rank": 0,
        "grammar_key": "k",
        "backend": "xgrammar",
        "start_ns": 0,
        "end_ns": 1,
        "steps": 100,
        "fills": 100,
        "fill_ns": 1_000_000,
        "fill_max_ns": 50_000,
        "exposed_ns": 400_000,
        "tokens": 150,
        "drafts_proposed": 80,
        "drafts_accepted": 60,
        "drafts_forbidden": 8,
        "end_reason": "completed",
    }
    return Decode(**fields | changes)


def hellos(ranks: int) -> tuple[Hello, ...]:
    """Return what an engine's launcher and ranks say when they connect."""
    connected = (Hello(role="rank", pid=2 + rank, boot="b", rank=rank, samples=True) for rank in range(ranks))
    return Hello(role="launcher", pid=1, boot="b"), *connected


SERVED: Final = (request(), decode()) * 10
KILLED: Final = Counter[Loss](deadline=9)  # workers, on somebody's endless schemas: no fault of the pod's
HEALTHY: Final = ServiceSnapshot(
    hellos=hellos(2), expected_ranks=range(2), workers=WorkersState(idle=2, forks=2, restarts=KILLED)
)
_BEGUN: Final = ContainerView(names.ENGINE_CONTAINER, 0, "", "", None, "")
CRASHED: Final = dataclasses.replace(
    _BEGUN, restarts=3, waiting_reason="CrashLoopBackOff", exit_code=1, exit_reason="Error"
)
PULLING: Final = dataclasses.replace(_BEGUN, waiting_reason="ImagePullBackOff")
STARTING_POD: Final[dict[str, Any]] = {
    "ready": False,
    "probe": "Pending",
    "hellos": hellos(0),
    "engine": dataclasses.replace(_BEGUN, starting=True),
}
READY_POD: Final[dict[str, Any]] = {
    "ready": True,
    "probe": "Passed",
    "hellos": hellos(2),
    "engine": _BEGUN,
}


class Pod:
    """A pod, by its sidecar's metrics.

    `engine` is the container as the kubelet tells of it; `serves`: the sidecar runs, and so is scraped. While
    the pod is ready, `records` are what it works between two pages.
    """

    def __init__(self, *, tensor_parallel: int = 2, **state: Any) -> None:
        self.ready, self.serves = True, True
        self.probe: Any = "Passed"
        self.records: Sequence[AnyRecord] = SERVED
        self.snapshot = HEALTHY
        self.engine = _BEGUN
        self.lost = 0
        self.metrics = SidecarMetrics(tensor_parallel)
        self.metrics.registry.register(HealthCollector(self._health))
        full = InMemorySpanExporter()
        full.shutdown()  # it takes nothing
        self._exporter = CountedExporter(full, self.metrics.registry)
        self.become(**state)

    def become(self, **state: Any) -> None:
        """Change what is given; fields of the snapshot by their names."""
        fields = {field.name for field in dataclasses.fields(ServiceSnapshot)} & state.keys()
        self.snapshot = dataclasses.replace(self.snapshot, **{name: state.pop(name) for name in fields})
        for name, value in state.items():
            setattr(self, name, value)

    def page(self) -> str:
        """Return the page after some more work."""
        for record in self.records if self.ready else ():
            self.metrics.take(record)
        self._exporter.export(self.lost * [ReadableSpan("lost")])
        return self.metrics.render().decode()

    def _health(self) -> tuple[Reading, Verdict]:
        reading = Reading(
            config=pod_config(Path("/nowhere"), model="/m", tensor_parallel=2),
            snapshot=self.snapshot,
            engine=EngineState(running=True),
            probe=ProbeStatus(state=self.probe),
        )
        return reading, Verdict(self.ready)


class Operator:
    """A replica of the operator, by its metrics; `failures` and `unsettles` happen between two pages."""

    def __init__(self, world: "World", *, leads: bool = True) -> None:
        self.leads, self.depth, self.forbidden = leads, 0, 0
        self.unsettles, self.unsettled = 0, 0
        self.failures: Mapping[str, int] = {}
        self.metrics = OperatorMetrics(lambda: world.now_s)
        self.metrics.attach(
            Sources(
                queue_depth=lambda: self.depth,
                leads=lambda: self.leads,
                unsettled=lambda: self.unsettled,
                forbidden=lambda: {"Pod": self.forbidden, "Service": 0},
                watch_failures=lambda: {"Pod": 0},
                unreadable=lambda: {"Pod": 0},
            )
        )

    def page(self) -> str:
        """Return the page after some more passes."""
        self.unsettled += self.unsettles
        for reason, count in {"WriteConflict": 5, **self.failures}.items():
            self.metrics.errors.labels(reason).inc(count)
        for _ in range(5):
            self.metrics.passes.labels("done").observe(0.01)
        return self.metrics.page().decode()


_OPERATOR_POD: Final[Object] = {
    "metadata": {"labels": {"app.kubernetes.io/name": "guidedmodel-operator"}},
    "spec": {"containers": [{"name": "operator", "ports": [{"name": "health", "containerPort": 8080}]}]},
}


class World:
    """A GuidedModel `ns/m` of some replicas, `ns/well` that is always well beside it, and the operator.

    Parameters
    ----------
    scraped_by
        The PodMonitor of the models' pods; by default that of the manifests.
    """

    def __init__(self, replicas: int = 1, *, scraped_by: Object | None = None) -> None:
        self.raw = model(replicas=replicas, parallelism={"tensor": 2}, probes={"startupTimeout": "30m"})
        self.pods = {f"m-{number}": Pod() for number in range(replicas)}
        self.now_s = 0
        self.operators: dict[str, Operator] = {}
        self.operators["operator-0"] = Operator(self)
        self.scrapes: list[Scrape] = []
        self._well = Pod()
        self._revisions: dict[str, str] = {}
        self._monitors = (scraped_by or observability("podmonitor"), observability("operator-podmonitor"))
        self._targets: dict[str, Scrape] = {}
        self._templates = {name: _template(self.raw, name) for name in ("m", "well")}

    @property
    def operator(self) -> Operator:
        """The first replica of the operator."""
        return next(iter(self.operators.values()))

    def run(self, minutes: float) -> None:
        """Have the operator look once at what has changed, and time pass."""
        for operator in self.operators.values():
            if operator.leads:
                self._look(operator)
        for _ in range(int(minutes * 60 / STEP_S)):
            self._scrape()
            self.now_s += STEP_S

    def alerts(self) -> list[Firing]:
        """Return what has begun to fire until now."""
        return alerts(self.scrapes, groups(), self.now_s, STEP_S)

    def fired(self) -> set[str]:
        """Return the names of the alerts that have fired."""
        return {one.name for one in self.alerts()}

    def _look(self, operator: Operator) -> None:
        views = tuple(self._view(name, each) for name, each in self.pods.items())
        observed = dataclasses.replace(applied(seen(self.raw)), pods=views)
        told = replicas(situation(observed))
        operator.metrics.models.count(observed.key, (), told)
        well = dataclasses.replace(told, desired=1, ready=1, updated=1, starting=0)
        operator.metrics.models.count(Key("ns", "well"), (), well)

    def _view(self, name: str, of: Pod) -> PodView:
        revision = self._revisions.setdefault(name, revision_of(self.raw))
        return pod(name, revision, ready=of.ready and of.serves, containers=(of.engine,))

    def _scrape(self) -> None:
        """Ask every target that there is for its page, and let those end that there were."""
        models, operators = self._monitors
        found: dict[str, Scrape] = {}
        for name, each in {**self.pods, "well-0": self._well}.items():
            if each.serves:
                template = self._templates["well" if each is self._well else "m"]
                found |= self._targets_of(models, template, "ns", name, each.page())
        for name, operator in self.operators.items():
            page = operator.page()
            found |= self._targets_of(operators, _OPERATOR_POD, "guidedmodel-system", name, page)
        gone = (self._targets[address] for address in sorted(self._targets.keys() - found))
        self.scrapes += [dataclasses.replace(each, at=self.now_s, state="gone") for each in gone]
        self.scrapes += found.values()
        self._targets = found

    def _targets_of(
        self, monitor: Object, template: Object, namespace: str, name: str, page: str
    ) -> Iterator[tuple[str, Scrape]]:
        for endpoint in endpoints(monitor):
            relabel = relabel_configs(monitor, endpoint)
            for labels in discovered(template, namespace, name):
                port = labels["__meta_kubernetes_pod_container_port_name"]
                if port == endpoint["port"] != "http":  # which has vLLM's own page; no alert reads it
                    yield labels["__address__"], Scrape(self.now_s, page, labels=labels, relabel=relabel)


def _template(raw: Object, name: str) -> Object:
    named = {**raw, "metadata": {**raw["metadata"], "name": name}}
    return pod_template(parse(named), SITE)


def own_monitor(raw: Object) -> Object:
    """Return the PodMonitor that the operator makes for a model with `telemetry.metrics: {}`."""
    spec = {**raw["spec"], "telemetry": {"metrics": {}}}
    children = after_pods(parse({**raw, "spec": spec}))
    return next(child for child in children if child["kind"] == "PodMonitor")
