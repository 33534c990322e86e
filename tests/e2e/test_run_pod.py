"""`guidedmodel run` with the sample: vLLM on two ranks, guided requests, traces, and what may go wrong."""

import asyncio
import json
import os
import re
import secrets
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import jsonschema
import pytest
from devtools.tinytasks import TOPICS, task

from support import grammars, openai
from support.pod import COMPILE_DEADLINE_S, Pod
from support.sidecar import busy_worker

pytestmark = [pytest.mark.engine, pytest.mark.timeout(1200)]

LONG_TOKENS = 400
PERSON = task("person")
# llguidance takes the regexes that keep xgrammar busy for ever.
XGRAMMAR = {"vllm_xargs": {"guided_backend": "xgrammar"}}
BROKEN = {"type": "object", "properties": {"age": {"type": "integr"}}}


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as pool:
        yield pool


def test_answers_meet_their_schema_and_regex(pod: Pod) -> None:
    for topic in TOPICS[:3]:
        answer = openai.text(openai.guided(pod.url, PERSON.prompt(topic), "json", json.loads(PERSON.spec)))
        jsonschema.validate(json.loads(answer), json.loads(PERSON.spec))
    code = task("code")
    answer = openai.text(openai.guided(pod.url, code.prompt("bob"), "regex", code.spec))
    assert re.fullmatch(code.spec, answer)
    assert openai.text(openai.completion(pod.url, task("story").prompt("bob")))


@pytest.mark.parametrize("backend", [{}, XGRAMMAR])
def test_a_string_is_as_long_as_its_bounds_say(pod: Pod, backend: dict[str, Any]) -> None:
    """Compiled by xgrammar, such bounds take seconds, and a mask of them milliseconds."""
    note = {"type": "string", "minLength": 190, "maxLength": 200}
    schema = {"type": "array", "items": note, "minItems": 1, "maxItems": 1}
    answer = openai.guided(pod.url, PERSON.prompt("ada"), "json", schema, max_tokens=400, **backend)

    (found,) = json.loads(openai.text(answer))
    assert 190 <= len(found) <= 200


def test_each_request_prints_its_trace_as_a_tree(pod: Pod) -> None:
    trace_id = secrets.token_hex(16)
    schema = {"type": "object", "properties": {"seen": {"enum": ["once"]}}, "required": ["seen"]}
    assert openai.text(openai.guided(pod.url, "x", "json", schema, trace_id=trace_id))
    pod.wait(lambda: pod.trace(trace_id))

    root, *below = pod.trace(trace_id)
    assert re.match(r"POST /v1/completions +[0-9.]+ ms  status 200, kind json", root)
    spans = (re.fullmatch(r"[│├└─ ]+(\S+) +[0-9.]+ ms(?:  (rank \d)?.*)?", line) for line in below)
    assert sorted(" ".join(filter(None, span.groups())) for span in spans if span) == [
        "grammar.compile",
        "grammar.load rank 0",
        "grammar.load rank 1",
        "grammar.prepare",
        "grammar.proof",
        "guided.decode rank 0",
        "llm_request",
    ]


@pytest.mark.parametrize("stream", [False, True])
def test_a_broken_schema_is_a_400_that_names_the_keyword(pod: Pod, stream: bool) -> None:  # noqa: FBT001 - a case
    response = openai.guided(pod.url, "x", "json", BROKEN, stream=stream)
    assert openai.error_code(response) == (400, "grammar_invalid")
    assert response.json()["error"]["param"] == "structured_outputs.json.properties.age.type"
    assert "integr" in response.json()["error"]["message"]


def test_an_endless_compile_is_a_400_at_its_deadline_and_its_worker_is_gone(
    pod: Pod, pool: ThreadPoolExecutor
) -> None:
    endless = pool.submit(openai.guided, pod.url, "x", "regex", grammars.endless_regex(1), **XGRAMMAR)
    worker = asyncio.run(busy_worker(pod.sidecar))

    short = openai.guided(pod.url, "x", "choice", ["while", "it", "compiles"])
    assert openai.text(short) in {"while", "it", "compiles"}
    response = endless.result()

    assert openai.error_code(response) == (400, "grammar_compile_timeout")
    assert f"within {COMPILE_DEADLINE_S:g} s" in response.text
    assert worker not in pod.processes()


def test_a_killed_compile_is_retried_on_another_worker(pod: Pod, pool: ThreadPoolExecutor) -> None:
    waiting = pool.submit(
        openai.guided, pod.url, "x", "regex", grammars.slow_regex(300), max_tokens=4, **XGRAMMAR
    )
    first = asyncio.run(busy_worker(pod.sidecar))
    os.kill(first, signal.SIGKILL)
    assert waiting.result().status_code == 200
    assert first not in pod.processes()


def test_a_second_kill_is_a_400_for_that_grammar_alone(pod: Pod, pool: ThreadPoolExecutor) -> None:
    waiting = [
        pool.submit(openai.guided, pod.url, "x", "regex", grammars.endless_regex(2), **XGRAMMAR)
        for _ in range(2)
    ]
    first = asyncio.run(busy_worker(pod.sidecar))
    os.kill(first, signal.SIGKILL)
    os.kill(asyncio.run(busy_worker(pod.sidecar)), signal.SIGKILL)

    for one in waiting:
        assert openai.error_code(one.result()) == (400, "grammar_compile_crashed")
    assert openai.text(openai.guided(pod.url, "x", "choice", ["after two crashes"])) == "after two crashes"


@pytest.mark.parametrize(
    "fields",
    [
        {"structured_outputs": {"regex": "[a-z ]+"}, "min_tokens": LONG_TOKENS},
        {"ignore_eos": True},
    ],
    ids=["guided", "unguided"],
)
def test_killing_the_sidecars_service_leaves_a_running_request_untouched(
    pod: Pod, pool: ThreadPoolExecutor, fields: dict[str, Any]
) -> None:
    # Proven before: a response is held until its grammar is, by when all of it may be there.
    assert openai.guided(pod.url, "x", "regex", "[a-z ]+", max_tokens=1).status_code == 200
    containers, service = pod.containers(), pod.sidecar.service_pid()
    assert service

    def begun() -> Future[int]:
        start = threading.Event()
        made = pool.submit(openai.streamed_tokens, pod.url, start, max_tokens=LONG_TOKENS, **fields)
        assert start.wait(60)
        return made

    while (running := begun()).done():  # a busy server may send all of it at once
        assert running.result() == LONG_TOKENS
    os.kill(service, signal.SIGKILL)

    assert running.result() == LONG_TOKENS
    pod.wait(lambda: pod.sidecar.service_pid() not in {None, service})
    assert pod.containers() == containers
    after = lambda: openai.guided(pod.url, "x", "choice", ["after"])  # noqa: E731 - asked until the ranks are back
    pod.wait(lambda: after().status_code == 200)
