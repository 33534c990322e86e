"""The whole way on a real node: helm install, kubectl apply, Ready, guided answers, their traces, delete."""

import asyncio
import concurrent.futures
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from devtools import deploy
from devtools.kubectl import Kubectl

from support import corpus, grammars, jaeger
from support.cluster import Node

pytestmark = [pytest.mark.node, pytest.mark.timeout(1200)]

NAMESPACE = "e2e"
TIMEOUT_S = 120.0
READY_WITHIN_S = 180.0
MAX_RETRIES = 5
XGRAMMAR = {"guided_backend": "xgrammar"}  # llguidance takes the regexes that keep it busy for ever
KUBELET_TIMEOUT_S = 180.0


@dataclass(frozen=True, slots=True)
class Served:
    """The sample, Ready on the node."""

    node: Node
    kubectl: Kubectl
    pod: str
    url: str
    ready_s: float

    def status(self) -> dict[str, Any]:
        """Return the resource's status."""
        status: dict[str, Any] = self.kubectl.get("guidedmodel/tiny", f"-n={NAMESPACE}")["status"]
        return status

    def grammars(self) -> dict[str, str]:
        """Return the state of each named grammar, by the resource's status."""
        return {one["name"]: one["state"] for one in self.status().get("grammars", ())}

    def restarts(self) -> dict[str, int]:
        """Return how often each container of the pod was restarted."""
        pod = self.kubectl.get(f"pod/{self.pod}", f"-n={NAMESPACE}")["status"]
        containers = pod["containerStatuses"] + pod["initContainerStatuses"]
        return {one["name"]: one["restartCount"] for one in containers}

    def execute(self, container: str, *command: str) -> str:
        """Run a command in a container of the pod."""
        return self.kubectl.run("exec", f"-n={NAMESPACE}", self.pod, f"-c={container}", "--", *command)


@pytest.fixture(scope="module")
def served(node: Node) -> Iterator[Served]:
    kubectl = Kubectl(node.kubeconfig)
    deploy.install(node.devtools)
    deploy.create_jaeger(kubectl)
    kubectl.run("create", "namespace", NAMESPACE)
    deploy.create_models(kubectl, deploy.models(), NAMESPACE)
    sample = deploy.sample()
    sample["metadata"]["namespace"] = NAMESPACE
    kubectl.apply(sample)
    ready_s = deploy.wait_ready(kubectl, "tiny", namespace=NAMESPACE)
    [pod] = kubectl.get("pods", f"-n={NAMESPACE}", "-l=guidedmodel.io/name=tiny")["items"]
    name = pod["metadata"]["name"]
    with kubectl.forwarded(f"pod/{name}", 8000, NAMESPACE) as url:
        yield Served(node, kubectl, name, url, ready_s)


def test_apply_to_ready_takes_under_three_minutes(served: Served) -> None:
    assert served.ready_s < READY_WITHIN_S


def test_status_tells_both_ranks_and_every_patch(served: Served) -> None:
    status = served.status()
    conditions = {one["type"]: one["status"] for one in status["conditions"]}
    assert conditions["Ready"] == conditions["GuidedDecoding"] == conditions["Compatible"] == "True"
    [pod] = status["pods"]
    assert [(rank["rank"], rank["state"]) for rank in pod["ranks"]] == [(0, "Connected"), (1, "Connected")]
    assert status["patches"]
    assert {patch["state"] for patch in status["patches"]} <= {"Applied", "Skipped"}


def test_shared_memory_has_the_size_that_two_ranks_need(served: Served) -> None:
    blocks = served.execute("engine", "df", "--output=size", "-k", "/dev/shm").split()[-1]
    assert int(blocks) == 2 * 1024 * 1024


def test_a_grammar_is_added_to_the_running_model(served: Served) -> None:
    """What becomes of it is looked at below: a kubelet takes a minute, which other tests can use."""
    texts = {"metadata": {"name": "texts", "namespace": NAMESPACE}, "data": {"choice.txt": "(stone|water)"}}
    reference = {"name": "texts", "key": "choice.txt"}
    sample = deploy.sample()
    sample["metadata"]["namespace"] = NAMESPACE
    guided = sample["spec"].setdefault("guidedDecoding", {})
    guided["grammars"] = [{"name": "material", "kind": "Regex", "configMapKeyRef": reference}]
    served.kubectl.apply({"apiVersion": "v1", "kind": "ConfigMap", **texts}, sample)
    _eventually(lambda: served.grammars() == {"material": "Pending"})
    merged = served.kubectl.get("configmap/tiny-grammars", f"-n={NAMESPACE}")
    assert merged["data"] == {"material.Regex": "(stone|water)"}


async def test_corpus_is_answered_validly_and_each_request_has_one_trace(served: Served) -> None:
    requests = corpus.requests()
    began = time.time()
    gate = asyncio.Semaphore(8)
    async with httpx.AsyncClient(base_url=served.url, timeout=TIMEOUT_S) as client:

        async def ask(request: corpus.Request) -> dict[str, Any]:
            async with gate:
                answer = await client.post("/v1/completions", json=request.body("tiny"))
                for _ in range(MAX_RETRIES):
                    if answer.status_code != 503:
                        break
                    # A machine too busy to load a grammar in time says when to come again.
                    await asyncio.sleep(float(answer.headers["Retry-After"]))
                    answer = await client.post("/v1/completions", json=request.body("tiny"))
            assert answer.status_code == 200, f"{request}: {answer.text}"
            [choice] = answer.json()["choices"]
            return dict(choice)

        choices = await asyncio.gather(*map(ask, requests))
    finished = [
        (r, c["text"]) for r, c in zip(requests, choices, strict=True) if c["finish_reason"] == "stop"
    ]
    faults = [fault for request, text in finished if (fault := request.fault(text))]
    assert faults == []
    assert len(finished) >= corpus.MIN_FINISHED
    await asyncio.to_thread(
        _check_traces,
        served.node.devtools.jaeger_url,
        requests,
        began,
        lambda: served.execute("sidecar", "python3", "-c", _READ_COUNTS),
    )


def test_refused_schema_has_a_trace_too(served: Served) -> None:
    began = time.time()
    body = {"model": "tiny", "prompt": "x", "structured_outputs": {"json": {"type": "nonsense"}}}
    answer = httpx.post(f"{served.url}/v1/completions", json=body, timeout=TIMEOUT_S)
    assert answer.status_code == 400
    code = answer.json()["error"]["code"]
    assert isinstance(code, str)
    found = _traces(served.node.devtools.jaeger_url, began, 1, _has_root)
    [trace] = [one for one in found if one.root.tags.get("error.type") == code]
    assert trace.root.tags["http.response.status_code"] == 400
    [prepare] = trace.named("grammar.prepare")
    for span in (trace.root, prepare):
        assert span.tags["error.type"] == code
        assert span.tags["otel.status_code"] == "ERROR"


def test_aborted_compile_is_told_by_its_request_and_by_a_trace_of_the_lost_worker(served: Served) -> None:
    began = time.time()
    endless = {"regex": grammars.endless_regex(7)}
    body = {"model": "tiny", "prompt": "x", "structured_outputs": endless, "vllm_xargs": XGRAMMAR}
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(f"{served.url}/v1/completions", json=body, timeout=3.0)
    url = served.node.devtools.jaeger_url

    def whole(trace: jaeger.Trace) -> bool:
        return _has_root(trace) and bool(
            trace.named("grammar.compile") or trace.named("grammar.worker.restart")
        )

    found = [trace for trace in _traces(url, began, 2, whole) if whole(trace)]
    [aborted] = [trace for trace in found if trace.named("grammar.compile")]
    [lost] = [trace for trace in found if trace.named("grammar.worker.restart")]
    [prepare], [compiled] = aborted.named("grammar.prepare"), aborted.named("grammar.compile")
    assert (aborted.root.tags["error.type"], aborted.root.tags["otel.status_code"]) == ("499", "ERROR")
    assert prepare.tags["error.type"] == compiled.tags["error.type"] == "cancelled"
    assert compiled.events["grammar.worker.lost"]["guidedmodel.worker.loss"] == "cancelled"
    assert lost.root.links == (compiled.span_id,)


def test_death_of_the_sidecars_service_costs_no_restart_and_no_running_request(served: Served) -> None:
    before = served.restarts()
    running = {"model": "tiny", "prompt": "Tell a story", "max_tokens": 400, "ignore_eos": True}
    guided = corpus.requests()[2].body("tiny")
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        answer = pool.submit(httpx.post, f"{served.url}/v1/completions", json=running, timeout=TIMEOUT_S)
        killed = served.execute("sidecar", "python3", "-c", _KILL_SERVICE)
        assert killed.split(), "there was a service to kill"
        assert answer.result().status_code == 200
        assert answer.result().json()["usage"]["completion_tokens"] == 400
    deadline = time.monotonic() + 60
    while (
        status := httpx.post(f"{served.url}/v1/completions", json=guided, timeout=TIMEOUT_S)
    ).status_code == 503:
        assert time.monotonic() < deadline
        time.sleep(0.2)
    assert status.status_code == 200, status.text
    assert served.restarts() == before


def test_the_added_grammar_is_served_and_nothing_was_restarted(served: Served) -> None:
    """By the real kubelet's hand: it brings a ConfigMap's change to a running pod within a minute or two."""
    by_name = {"guided_grammar": "material"}
    body = {"model": "tiny", "prompt": "x", "max_tokens": 20, "temperature": 0, "vllm_xargs": by_name}

    def asked() -> httpx.Response:
        return httpx.post(f"{served.url}/v1/completions", json=body, timeout=TIMEOUT_S)

    _eventually(lambda: asked().status_code == 200, KUBELET_TIMEOUT_S)
    assert asked().json()["choices"][0]["text"] in {"stone", "water"}
    _eventually(lambda: served.grammars() == {"material": "Ready"})
    assert set(served.restarts().values()) == {0}
    revisions = served.kubectl.get("controllerrevisions", f"-n={NAMESPACE}", "-l=guidedmodel.io/name=tiny")
    assert len(revisions["items"]) == 1


def test_delete_leaves_nothing(served: Served) -> None:
    served.kubectl.run("delete", "guidedmodel/tiny", f"-n={NAMESPACE}", "--timeout=60s")
    kinds = (
        "deployments,replicasets,pods,services,endpointslices,configmaps,serviceaccounts,controllerrevisions"
    )
    deadline = time.monotonic() + 120
    while left := served.kubectl.run(
        "get", kinds, f"-n={NAMESPACE}", "-l=guidedmodel.io/name=tiny", "-o=name"
    ):
        assert time.monotonic() < deadline, left
        time.sleep(0.5)


def _eventually(holds: Callable[[], bool], timeout_s: float = 60.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.5)


# SIGKILL to the service, by its command line; the supervisor, process 1 of the container, stays.
_KILL_SERVICE = """
import os, pathlib, signal
for entry in pathlib.Path("/proc").iterdir():
    if entry.name.isdigit():
        try:
            arguments = (entry / "cmdline").read_bytes().split(b"\\0")
        except OSError:
            continue
        if b"guided_sidecar.service" in arguments:
            os.kill(int(entry.name), signal.SIGKILL)
            print(entry.name)
"""


# The sidecar's own word on what it lost.
_READ_COUNTS = """
import urllib.request
page = urllib.request.urlopen("http://127.0.0.1:8002/metrics").read().decode()
print("\\n".join(line for line in page.splitlines() if not line.startswith("#")))
"""


def _check_traces(url: str, requests: list[corpus.Request], began: float, counts: Callable[[], str]) -> None:
    def is_whole(trace: jaeger.Trace) -> bool:
        if not _has_root(trace):
            return False
        return trace.root.tags.get("http.response.status_code") == 503 or bool(trace.named("llm_request"))

    found = _traces(url, began, len(requests), is_whole)
    traces = [trace for trace in found if trace.named("llm_request")]
    assert len(traces) == len(requests)
    rootless = [trace.trace_id for trace in traces if not _has_root(trace)]
    assert not rootless, f"the root's record was lost; the sidecar counted:\n{counts()}"
    guided = [trace for trace in traces if trace.named("grammar.prepare")]
    assert len(guided) == sum(request.is_guided for request in requests)
    for trace in traces:
        assert trace.root.name == "POST /v1/completions"
        assert trace.root.tags["span.kind"] == "server"
        [engine] = trace.named("llm_request")
        assert engine.parents == (trace.root.span_id,)
        for span in trace.spans:
            assert span is trace.root or trace.is_below(span, trace.root), span
    for trace in guided:
        [prepare] = trace.named("grammar.prepare")
        assert prepare.parents == (trace.root.span_id,)
        [decoded] = trace.named("guided.decode")
        assert decoded.tags["guidedmodel.decode.ranks"] == 2, "both ranks told of their decoding"


def _has_root(trace: jaeger.Trace) -> bool:
    return any(not span.parents for span in trace.spans)


def _traces(url: str, began: float, count: int, is_whole: Any) -> list[jaeger.Trace]:
    """Wait until so many traces are whole: vLLM's exporter sends every few seconds."""
    deadline = time.monotonic() + 60
    while True:
        found = jaeger.traces(url, "tiny", began)
        if len(found) >= count and all(map(is_whole, found)):
            return found
        if time.monotonic() > deadline:
            return found
        time.sleep(0.5)
