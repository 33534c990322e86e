"""One pod with a key, an adapter, and guesses that stop where the batch is full."""

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


def reported(pod: Pod) -> Any:
    """Return what the resource's status says of speculation, by the pod's own page."""
    with urllib.request.urlopen(f"http://127.0.0.1:{pod.ports.sidecar}/status", timeout=10) as page:
        told = status.decode(page.read())
    raw = model(speculative=SPECULATIVE)
    observed = applied(seen(raw))
    one = observed_pod("m-0", revision_of(raw))
    observed = dataclasses.replace(observed, pods=(one,), pages={one.uid: Page(told)})
    return to_object(make_status(situation(observed), dt.datetime.now(dt.UTC)))["speculation"]


def test_status_tells_how_the_engine_speculates_and_with_how_many_tokens_now(pod: Pod) -> None:
    """disableAbove: none while three are served, and again once one is; answers meet their schema always."""

    def drafts(tokens: int) -> bool:
        return bool(reported(pod).get("numTokens") == {"min": tokens, "max": tokens})

    ended = threading.Event()

    def load(topic: str) -> None:
        while not ended.is_set():
            person(ask(pod, topic, **GUIDED))

    person(ask(pod, TOPICS[0], **GUIDED))
    pod.wait(lambda: drafts(3))
    found = reported(pod)
    assert (found["method"], found["async"], found["fallback"]) == ("draft_model", True, "")
    with ThreadPoolExecutor(6) as pool:
        loads = [pool.submit(load, topic) for topic in TOPICS[:6]]
        try:
            pod.wait(lambda: drafts(0))
        finally:
            ended.set()
    for one in loads:
        one.result()
    person(ask(pod, TOPICS[0], **GUIDED))
    pod.wait(lambda: drafts(3))
