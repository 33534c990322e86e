"""The whole way on a real node: helm install, kubectl apply, Ready, guided answers, traces, grammars."""

import asyncio
import concurrent.futures
import time
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from guided_sidecar import service
from support import corpus, jaeger
from support.served import NAMESPACE, Served, sample
from support.soak.answers import wrong_text
from support.soak.requests import Request
from support.waiting import eventually

pytestmark = [pytest.mark.node, pytest.mark.timeout(1200)]

TIMEOUT_S = 120.0
MAX_RETRIES = 5
KUBELET_TIMEOUT_S = 180.0


def test_status_tells_both_ranks(served: Served) -> None:
    status = served.status()
    conditions = {one["type"]: one["status"] for one in status["conditions"]}
    assert conditions["Ready"] == conditions["GuidedDecoding"] == conditions["Compatible"] == "True"
    assert status["ranks"] == {"total": 2, "missing": 0, "desynced": 0}


def test_a_grammar_is_added_to_the_running_model(served: Served) -> None:
    """What becomes of it is looked at below: a kubelet takes a minute, which other tests can use."""
    reference = {"name": "texts", "key": "choice.txt"}
    model = sample()
    guided = model["spec"].setdefault("guidedDecoding", {})
    guided["grammars"] = [{"name": "material", "kind": "Regex", "configMapKeyRef": reference}]
    served.kubectl.apply(_texts("(stone|water)"), model)
    eventually(lambda: served.status()["grammars"]["pending"] == 1, 60)
    merged = served.kubectl.get("configmap/tiny-grammars", f"-n={NAMESPACE}")
    assert merged["data"] == {"material.Regex": "(stone|water)"}


async def test_corpus_is_answered_validly_and_each_request_has_one_trace(served: Served) -> None:
    requests = corpus.requests()
    began = time.time()
    gate = asyncio.Semaphore(8)
    async with httpx.AsyncClient(base_url=served.url, timeout=TIMEOUT_S) as client:

        async def ask(request: Request) -> dict[str, Any]:
            async with gate:
                answer = await client.post("/v1/completions", json=request.body())
                for _ in range(MAX_RETRIES):
                    if answer.status_code != 503:
                        break
                    # A machine too busy to load a grammar in time says when to come again.
                    await asyncio.sleep(float(answer.headers["Retry-After"]))
                    answer = await client.post("/v1/completions", json=request.body())
            assert answer.status_code == 200, f"{request}: {answer.text}"
            [choice] = answer.json()["choices"]
            return dict(choice)

        choices = await asyncio.gather(*map(ask, requests))
    finished = [
        (r, c["text"]) for r, c in zip(requests, choices, strict=True) if c["finish_reason"] == "stop"
    ]
    faults = [fault for request, text in finished if (fault := wrong_text(request, text))]
    assert faults == []
    assert len(finished) >= corpus.MIN_FINISHED
    await asyncio.to_thread(
        _check_traces,
        served.node.devtools.jaeger_url,
        requests,
        began,
        lambda: _counts(served),
    )


def test_an_added_grammar_is_served(served: Served) -> None:
    """By the real kubelet's hand: it brings a ConfigMap's change to a running pod within a minute or two."""
    eventually(lambda: _answers(served, {"stone", "water"}), KUBELET_TIMEOUT_S)
    # What becomes of the next change is looked at below.
    served.kubectl.apply(_texts("(bronze|silver)"))


def test_death_of_the_sidecars_service_costs_no_restart_and_no_running_request(served: Served) -> None:
    before = served.restarts()
    running = {"model": "tiny", "prompt": "Tell a story", "max_tokens": 400, "ignore_eos": True}
    guided = corpus.requests()[2].body()
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        answer = pool.submit(httpx.post, f"{served.url}/v1/completions", json=running, timeout=TIMEOUT_S)
        killed = served.execute("sidecar", "python3", "-c", _KILL_SERVICE)
        assert killed.split(), "there was a service to kill"
        assert answer.result().status_code == 200
        assert answer.result().json()["usage"]["completion_tokens"] == 400

    def last() -> httpx.Response | None:
        answer = httpx.post(f"{served.url}/v1/completions", json=guided, timeout=TIMEOUT_S)
        return None if answer.status_code == 503 else answer

    status = eventually(last, 60)
    assert status is not None
    assert status.status_code == 200, status.text
    assert served.restarts() == before


def test_a_changed_grammar_is_served_and_nothing_was_restarted(served: Served) -> None:
    eventually(lambda: _answers(served, {"bronze", "silver"}), KUBELET_TIMEOUT_S)
    eventually(lambda: served.status()["grammars"]["ready"] == 1, 60)
    assert set(served.restarts().values()) == {0}
    revisions = served.kubectl.get("controllerrevisions", f"-n={NAMESPACE}", "-l=guidedmodel.io/name=tiny")
    assert len(revisions["items"]) == 1


def _texts(regex: str) -> dict[str, Any]:
    about = {"name": "texts", "namespace": NAMESPACE}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": about, "data": {"choice.txt": regex}}


def _answers(served: Served, words: set[str]) -> bool:
    """Ask for the named grammar, and return whether it is the one with these words."""
    by_name = {"guided_grammar": "material"}
    body = {"model": "tiny", "prompt": "x", "max_tokens": 20, "temperature": 0, "vllm_xargs": by_name}
    answer = httpx.post(f"{served.url}/v1/completions", json=body, timeout=TIMEOUT_S)
    return answer.status_code == 200 and answer.json()["choices"][0]["text"] in words


# SIGKILL to the service, by its name; the supervisor, process 1 of the container, stays.
_KILL_SERVICE = f"""
import os, pathlib, signal
for entry in pathlib.Path("/proc").iterdir():
    if entry.name.isdigit():
        try:
            name = (entry / "comm").read_text().strip()
        except OSError:
            continue
        if name == "{service.NAME}":
            os.kill(int(entry.name), signal.SIGKILL)
            print(entry.name)
"""


def _counts(served: Served) -> str:
    """Return what the sidecar has counted."""
    read = "import urllib.request as r; print(r.urlopen('http://127.0.0.1:8002/metrics').read().decode())"
    return served.execute("sidecar", "python3", "-c", read)


def _check_traces(url: str, requests: list[Request], began: float, counts: Callable[[], str]) -> None:
    def is_whole(trace: jaeger.Trace) -> bool:
        if not _has_root(trace):
            return False
        return trace.root.tags.get("http.response.status_code") == 503 or bool(trace.named("llm_request"))

    def is_answered(trace: jaeger.Trace) -> bool:
        return bool(trace.named("llm_request"))  # a 503 is sent again, as a trace of its own

    found = _traces(url, began, len(requests), is_whole, is_answered)
    traces = [trace for trace in found if is_answered(trace)]
    assert len(traces) == len(requests)
    rootless = [trace.trace_id for trace in traces if not _has_root(trace)]
    assert not rootless, f"the root's record was lost; the sidecar counted:\n{counts()}"
    guided = [trace for trace in traces if trace.named("grammar.prepare")]
    assert len(guided) == sum(request.kind != "none" for request in requests)
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
        assert decoded.tags["guidedmodel.rank"] == 0, "the first rank tells for both"


def _has_root(trace: jaeger.Trace) -> bool:
    return any(not span.parents for span in trace.spans)


def _traces(
    url: str,
    began: float,
    count: int,
    is_whole: Callable[[jaeger.Trace], bool],
    is_one: Callable[[jaeger.Trace], bool],
) -> list[jaeger.Trace]:
    """Wait until all traces are whole, and so many are ones: vLLM's exporter sends every few seconds."""
    deadline = time.monotonic() + 60
    while True:
        found = jaeger.traces(url, "tiny", began)
        if sum(map(is_one, found)) >= count and all(map(is_whole, found)):
            return found
        if time.monotonic() > deadline:
            return found
        time.sleep(0.5)
