"""The whole way on a real node: helm install, kubectl apply, Ready, guided answers, traces, grammars."""

import asyncio
import time
from typing import Any

import httpx
import pytest

from support import corpus, jaeger
from support.served import NAMESPACE, Served, sample
from support.soak.answers import wrong_text
from support.soak.requests import Request
from support.waiting import eventually

pytestmark = [pytest.mark.node, pytest.mark.timeout(1200)]

TIMEOUT_S = 120.0
MAX_TRIES = 6
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
            for _ in range(MAX_TRIES):
                async with gate:
                    answer = await client.post("/v1/completions", json=request.body())
                if answer.status_code != 503:
                    break
                # A machine too busy to load a grammar in time says when to come again.
                await asyncio.sleep(float(answer.headers["Retry-After"]))
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
    await asyncio.to_thread(_check_traces, served.node.devtools.jaeger_url, requests, began)


def test_an_added_grammar_is_served_and_nothing_was_restarted(served: Served) -> None:
    """By the real kubelet's hand: it brings a ConfigMap's change to a running pod within a minute or two."""
    eventually(lambda: _answers(served, {"stone", "water"}), KUBELET_TIMEOUT_S)
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


def _check_traces(url: str, requests: list[Request], began: float) -> None:
    """One trace of each answered request, whole; vLLM's exporter sends every few seconds."""

    def answered() -> list[jaeger.Trace]:
        found = jaeger.traces(url, "tiny", began)
        return [trace for trace in found if trace.named("llm_request")]  # a 503 is sent again, in another

    def roots() -> list[list[tuple[str, ...]]]:
        return [[root.parents for root in trace.roots] for trace in answered()]

    eventually(lambda: roots() == [[()]] * len(requests), 60, lambda: f"one root each: {roots()}", poll_s=0.5)
    guided = 0
    for trace in answered():
        [root] = trace.roots
        assert (root.name, root.tags["span.kind"]) == ("POST /v1/completions", "server")
        [engine] = trace.named("llm_request")
        assert engine.parents == (root.span_id,)
        for prepare in trace.named("grammar.prepare"):
            assert prepare.parents == (root.span_id,)
            [decoded] = trace.named("guided.decode")
            assert decoded.tags["guidedmodel.rank"] == 0, "the first rank tells for both"
            guided += 1
    assert guided == sum(request.kind != "none" for request in requests)
