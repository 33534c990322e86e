"""One pod with a key, an adapter, and guesses that stop where the batch is full."""

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import jsonschema
import pytest
from devtools.tinytasks import TOPICS, task

from guided_contract import status
from support import openai
from support.adapter import adapter
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


def ask(pod: Pod, *, model: str = "tiny", key: str = KEY, **fields: Any) -> httpx.Response:
    prompt = PERSON.prompt(TOPICS[0])
    return httpx.post(
        f"{pod.url}/v1/completions",
        json={"model": model, "prompt": prompt, "max_tokens": 200, "temperature": 0, **fields},
        headers={"Authorization": f"Bearer {key}"},
        timeout=120,
    )


GUIDED = {"response_format": {"type": "json_schema", "json_schema": {"name": "person", "schema": SCHEMA}}}


def check_guided(pod: Pod, **fields: Any) -> None:
    jsonschema.validate(json.loads(openai.text(ask(pod, **GUIDED, **fields))), SCHEMA)


def test_the_probe_had_the_key_and_others_need_it(pod: Pod) -> None:
    assert ask(pod, key="guess").status_code == 401
    check_guided(pod)


def test_an_adapter_is_a_model_of_its_own_and_guided(pod: Pod) -> None:
    assert openai.text(ask(pod)) != openai.text(ask(pod, model="tuned"))
    check_guided(pod, model="tuned")


def test_no_draft_tokens_are_proposed_while_more_than_disable_above_are_served(pod: Pod) -> None:
    """And again once one is, by the pod's page; answers meet their schema always."""

    def drafts(tokens: int) -> bool:
        page = httpx.get(f"http://127.0.0.1:{pod.ports.sidecar}/status", timeout=10)
        told = status.decode(page.content).speculation
        return told == status.SpeculationStatus(method="draft_model", num_tokens=(tokens, tokens))

    ended = threading.Event()

    def load(_: int) -> None:
        while not ended.is_set():
            check_guided(pod)

    check_guided(pod)
    pod.wait(lambda: drafts(3))
    with ThreadPoolExecutor(6) as pool:
        loads = pool.map(load, range(6))
        try:
            pod.wait(lambda: drafts(0))
        finally:
            ended.set()
    assert list(loads) == [None] * 6
    check_guided(pod)
    pod.wait(lambda: drafts(3))
