"""A running pod as Prometheus sees it by our PodMonitors: the dashboard's queries of vLLM's own metrics."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from devtools import dashboard, golang
from prometheus_client.parser import text_string_to_metric_families

from guided_operator.api import parse
from guided_operator.builders.pod import pod_template
from support import openai
from support.cluster import unavailable
from support.monitored import observability, own_monitor
from support.observed import SITE
from support.pod import Pod, sample
from support.promql import Scrape, as_sent, evaluate
from support.scraping import discovered, endpoints, relabel_configs

pytestmark = [pytest.mark.engine, pytest.mark.timeout(1200)]

STEP_S = 60.0  # of played time, from one scrape to the next


def test_every_query_of_vllms_metrics_finds_what_it_asks_for(pod: Pod) -> None:
    try:
        golang.promql()
    except golang.MissingToolError as error:
        unavailable(error)
    scrapes: list[Scrape] = []
    for number in range(2):
        assert openai.text(openai.completion(pod.url, "Tell a story for bob\n", max_tokens=8))
        scrapes += _scraped(pod, number * STEP_S)
    exposed = {
        one.name: {*one.labels}
        for page in scrapes
        for each in text_string_to_metric_families(page.body)
        for one in each.samples
    }
    panels = [panel for panel in dashboard.ROWS["vLLM"] for _ in panel.queries]
    queries = [as_sent(query, STEP_S) for panel in dashboard.ROWS["vLLM"] for query, _ in panel.queries]

    for panel, answer in zip(panels, evaluate(scrapes, queries, STEP_S), strict=True):
        [(labels, value)] = answer.series
        assert labels == {"model": "tiny"}, panel.title
        assert value >= 0, panel.title
        for metric, read in answer.reads:
            assert metric.startswith("vllm:")
            assert {*read} <= exposed[metric] | {"namespace", "model"}, "what a scrape adds"


def test_a_models_own_monitor_scrapes_as_the_one_of_the_manifests() -> None:
    """Ports, paths and the labels that the dashboard chooses by."""
    shared, own = observability("podmonitor"), own_monitor(sample())
    assert {each["port"] for each in endpoints(shared)} == {"sidecar", "http"}
    for one, other in zip(endpoints(shared), endpoints(own), strict=True):
        assert (one["port"], one["path"]) == (other["port"], other["path"])
        assert other["relabelings"] == [{"action": "replace", **each} for each in one["relabelings"]]


def _scraped(pod: Pod, at: float) -> Iterator[Scrape]:
    """Yield a page of each port that our PodMonitor names, with the labels that a scrape adds."""
    monitor = observability("podmonitor")
    template: dict[str, Any] = pod_template(parse(sample()), SITE)
    there = {"http": pod.ports.engine, "sidecar": pod.ports.sidecar}
    for endpoint in endpoints(monitor):
        for labels in discovered(template, "models", "tiny-0"):
            if labels["__meta_kubernetes_pod_container_port_name"] == endpoint["port"]:
                address = f"http://127.0.0.1:{there[endpoint['port']]}{endpoint['path']}"
                page = httpx.get(address, timeout=30).text
                yield Scrape(at, page, labels=labels, relabel=relabel_configs(monitor, endpoint))
