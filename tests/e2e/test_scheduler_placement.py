"""A whole pod with placement Scheduler: vLLM serves guided requests itself, and we stay out of its way."""

import json
import re
from collections.abc import Iterator

import httpx
import jsonschema
import pytest
from devtools.tinytasks import TOPICS, task

from guided_contract import status
from support import openai
from support.pod import Pod, sample, start_pod

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]

PERSON = task("person")


@pytest.fixture(scope="module")
def pod() -> Iterator[Pod]:
    manifest = sample(guidedDecoding={"placement": "Scheduler"}, parallelism={"tensor": 1})
    pod = start_pod(manifest)
    yield pod
    pod.stop()


def test_guided_requests_are_answered(pod: Pod) -> None:
    schema = json.loads(PERSON.spec)
    jsonschema.validate(
        json.loads(openai.text(openai.guided(pod.url, PERSON.prompt(TOPICS[0]), "json", schema))), schema
    )
    code = task("code")
    assert re.fullmatch(
        code.spec, openai.text(openai.guided(pod.url, code.prompt("bob"), "regex", code.spec))
    )
    assert openai.text(openai.guided(pod.url, "x", "choice", ["stone", "water"])) in {"stone", "water"}


def test_a_broken_schema_is_vllms_own_400(pod: Pod) -> None:
    broken = {"type": "object", "properties": 7}
    whole = openai.guided(pod.url, "x", "json", broken)
    assert (whole.status_code, whole.json()["error"]["code"]) == (400, 400)
    # Its streams begin before it looks at the schema.
    stream = openai.guided(pod.url, "x", "json", broken, stream=True)
    event = next(line for line in stream.text.splitlines() if line.startswith("data: {"))
    assert (stream.status_code, json.loads(event.removeprefix("data: "))["error"]["code"]) == (200, 400)


def test_the_pod_says_what_was_left_alone(pod: Pod) -> None:
    page = status.decode(httpx.get(f"http://127.0.0.1:{pod.config.ports.sidecar}/status", timeout=10).content)
    assert page.ready
    states = {patch.name: patch.state for patch in page.patches}
    for ours in ("admission", "validators", "core-detached", "core-ends-sequences", "rank-masks"):
        assert states[ours] == "Skipped"
    assert "Failed" not in states.values()
