"""One pod with a key, an adapter, and guesses that stop where the batch is full; one with prompt lookup."""

import dataclasses
import datetime as dt
import json
import threading
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import jsonschema
import pytest
from devtools.tinytasks import TOPICS, task
from prometheus_client.parser import text_string_to_metric_families

from guided_contract import status
from guided_operator.reconcile.report import make_status, to_object
from guided_operator.watch.sidecar_status import Page
from support.adapter import adapter
from support.observed import applied, model, revision_of, seen, situation
from support.observed import pod as observed_pod
from support.pod import Pod, sample, start_pod

pytestmark = [pytest.mark.engine, pytest.mark.timeout(600)]

KEY = "sesame"
PERSON = task("person")
SCHEMA = json.loads(PERSON.spec)
SPECULATIVE = {
    "method": "DraftModel",
    "numTokens": 3,
    "draftModel": {"uri": "pvc://models/tiny-draft"},
    "asyncScheduling": "On",
    "disableAbove": 2,
}


@pytest.fixture(scope="module")
def pod() -> Iterator[Pod]:
    folder = adapter()
    manifest = sample(
        parallelism={"tensor": 1},
        lora={"adapters": [{"name": "tuned", "uri": f"pvc://adapters/{folder.name}"}]},
        speculative=SPECULATIVE,
    )
    manifest["spec"]["engine"] |= {"apiKeySecretKeyRef": {"name": "s", "key": "k"}}
    manifest["spec"]["engine"]["args"] += ["--max-num-seqs=8"]
    pod = start_pod(manifest, args=["--volume", f"adapters={folder.parent}"], env={"VLLM_API_KEY": KEY})
    yield pod
    pod.stop()


def ask(pod: Pod, topic: str, *, model: str = "tiny", key: str = KEY, **fields: Any) -> httpx.Response:
    return httpx.post(
        f"{pod.url}/v1/completions",
        json={"model": model, "prompt": PERSON.prompt(topic), "max_tokens": 200, "temperature": 0, **fields},
        headers={"Authorization": f"Bearer {key}"},
        timeout=120,
    )


GUIDED = {"response_format": {"type": "json_schema", "json_schema": {"name": "person", "schema": SCHEMA}}}


def person(response: httpx.Response) -> Any:
    assert response.status_code == 200, response.text
    found = json.loads(response.json()["choices"][0]["text"])
    jsonschema.validate(found, SCHEMA)
    return found


def test_the_probe_had_the_key_and_others_need_it(pod: Pod) -> None:
    assert ask(pod, TOPICS[0], key="guess").status_code == 401
    person(ask(pod, TOPICS[0], **GUIDED))


def test_an_adapter_is_a_model_of_its_own_and_guided(pod: Pod) -> None:
    plain, tuned = (ask(pod, TOPICS[0], model=model).json() for model in ("tiny", "tuned"))
    assert plain["choices"][0]["text"] != tuned["choices"][0]["text"]
    person(ask(pod, TOPICS[0], model="tuned", **GUIDED))


def test_answers_meet_their_schema_on_both_sides_of_the_full_batch(pod: Pod) -> None:
    alone = [person(ask(pod, topic, **GUIDED)) for topic in TOPICS[:6]]
    with ThreadPoolExecutor(6) as pool:
        together = [person(one) for one in pool.map(lambda topic: ask(pod, topic, **GUIDED), TOPICS[:6])]
    assert len(together) == len(alone)


def reported(pod: Pod, speculative: Any = SPECULATIVE) -> Any:
    """Return what the resource's status says of speculation, by the pod's own page."""
    with urllib.request.urlopen(f"http://127.0.0.1:{pod.ports.sidecar}/status", timeout=10) as page:
        told = status.decode(page.read())
    raw = model(speculative=speculative)
    observed = applied(seen(raw))
    one = observed_pod("m-0", revision_of(raw))
    observed = dataclasses.replace(observed, pods=(one,), pages={one.uid: Page(told)})
    return to_object(make_status(situation(observed), dt.datetime.now(dt.UTC)))["speculation"]


def test_status_tells_how_the_engine_speculates(pod: Pod) -> None:
    ask(pod, TOPICS[0], **GUIDED)
    pod.wait(lambda: "numTokens" in reported(pod))
    found = reported(pod)
    assert (found["method"], found["async"], found["fallback"]) == ("draft_model", True, "")


def test_status_tells_how_many_tokens_are_drafted_now(pod: Pod) -> None:
    """disableAbove: none while three are served, and again once one is."""

    def tokens() -> Any:
        return reported(pod)["numTokens"]

    few, many = {"min": 3, "max": 3}, {"min": 0, "max": 0}
    ended = threading.Event()

    def load() -> None:
        while not ended.is_set():
            ask(pod, TOPICS[0], ignore_eos=True)

    ask(pod, TOPICS[0])
    pod.wait(lambda: tokens() == few)
    with ThreadPoolExecutor(6) as pool:
        loads = [pool.submit(load) for _ in range(6)]
        try:
            pod.wait(lambda: tokens() == many)
        finally:
            ended.set()
    for one in loads:
        one.result()
    ask(pod, TOPICS[0])
    pod.wait(lambda: tokens() == few)


def test_vllms_own_metrics_tell_what_came_of_the_guesses(pod: Pod) -> None:
    """By the names that the dashboard reads."""
    with urllib.request.urlopen(f"http://127.0.0.1:{pod.ports.engine}/metrics", timeout=10) as page:
        families = text_string_to_metric_families(page.read().decode())
        samples = [one for family in families for one in family.samples]
    name = "vllm:spec_decode_num_{}_tokens_total"
    accepted, drafted = (
        sum(one.value for one in samples if one.name == name.format(each)) for each in ("accepted", "draft")
    )
    assert 0 < accepted < drafted


def test_status_says_why_a_cpu_looks_up_prompts_synchronously() -> None:
    """In vLLM's words, as tests/contract/test_combinations.py finds them in vLLM."""
    speculative = {"method": "NGram", "numTokens": 3}
    pod = start_pod(sample(parallelism={"tensor": 1}, speculative=speculative))
    try:
        prompt = PERSON.prompt(TOPICS[0])
        for _ in range(2):  # the second prompt has the first answer, where its tokens are found
            answer = httpx.post(
                f"{pod.url}/v1/completions",
                json={"model": "tiny", "prompt": prompt, "max_tokens": 200, "temperature": 0, **GUIDED},
                timeout=120,
            )
            prompt = f"{json.dumps(person(answer))}\n{prompt}"
        pod.wait(lambda: "numTokens" in reported(pod, speculative))
        found = reported(pod, speculative)
        said, _, words = found["fallback"].partition(": ")
        assert (found["method"], found["async"], said) == ("ngram", False, "vLLM says")
        assert "ngram-based speculative decoding" in words
    finally:
        pod.stop()
