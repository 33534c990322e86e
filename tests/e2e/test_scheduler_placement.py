"""A whole pod with placement Scheduler: vLLM serves guided requests itself, and we stay out of its way."""

import json
from collections.abc import Iterator

import pytest

from support import openai
from support.pod import Pod, sample, start_pod
from support.routes import CONSTRAINTS

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def pod() -> Iterator[Pod]:
    manifest = sample(guidedDecoding={"placement": "Scheduler"}, parallelism={"tensor": 1})
    pod = start_pod(manifest)
    yield pod
    pod.stop()


@pytest.mark.parametrize("kind", CONSTRAINTS)
def test_guided_requests_are_answered_by_vllm_itself(pod: Pod, kind: str) -> None:
    asked = CONSTRAINTS[kind]
    asked.check(openai.text(openai.guided(pod.url, asked.prompt, asked.kind, asked.spec)))


def test_a_broken_schema_is_vllms_own_400(pod: Pod) -> None:
    broken = {"type": "object", "properties": 7}
    whole = openai.guided(pod.url, "x", "json", broken)
    assert (whole.status_code, whole.json()["error"]["code"]) == (400, 400)
    # Its streams begin before it looks at the schema.
    stream = openai.guided(pod.url, "x", "json", broken, stream=True)
    event = next(line for line in stream.text.splitlines() if line.startswith("data: {"))
    assert (stream.status_code, json.loads(event.removeprefix("data: "))["error"]["code"]) == (200, 400)
