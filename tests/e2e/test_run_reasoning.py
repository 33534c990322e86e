"""A model that thinks before it answers, by HTTP and through the libraries that people use.

The sample, whose chat template takes `enable_thinking`; the libraries in an environment of their own
(requirements/clients.txt).
"""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import jsonschema
import pytest
from devtools import venvs
from devtools.golang import MissingToolError

from support import openai
from support.clients import cases as clients
from support.clients.cases import Case
from support.cluster import unavailable
from support.pod import Pod

pytestmark = [pytest.mark.engine, pytest.mark.timeout(1200)]

TESTS = Path(__file__).parents[1]
LIBRARIES_S = 300
SCHEMA = {
    "type": "object",
    "properties": {"mood": {"enum": ["good", "bad"]}},
    "required": ["mood"],
    "additionalProperties": False,
}
ASKED = "Give me the JSON record for alice\n"
THINKING = {"chat_template_kwargs": {"enable_thinking": True}}
EOS = 1
PUSHED = 448  # another token
# By route: path, the body's own keys, and what asks for a call, or for JSON.
CHAT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/responses", "/v1/messages"
MESSAGE = {"messages": [{"role": "user", "content": ASKED}]}
BODIES: dict[str, dict[str, Any]] = {
    CHAT: {**MESSAGE, "max_tokens": 300},
    RESPONSES: {"input": ASKED, "max_output_tokens": 300},
    MESSAGES: {**MESSAGE, "max_tokens": 300},
}
CALLS: dict[str, dict[str, Any]] = {
    CHAT: {
        "tools": [{"type": "function", "function": {"name": "tell", "parameters": SCHEMA}}],
        "tool_choice": "required",
    },
    RESPONSES: {
        "tools": [{"type": "function", "name": "tell", "parameters": SCHEMA}],
        "tool_choice": "required",
    },
    MESSAGES: {"tools": [{"name": "tell", "input_schema": SCHEMA}], "tool_choice": {"type": "any"}},
}
FORMAT = {"type": "json_schema", "name": "mood", "schema": SCHEMA}
ANSWERS: dict[str, dict[str, Any]] = {
    CHAT: {"response_format": {"type": "json_schema", "json_schema": {"name": "mood", "schema": SCHEMA}}},
    RESPONSES: {"text": {"format": FORMAT}},
    MESSAGES: {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}},
}


class Told:
    """An answer of any route, whole or streamed: what was thought, said and called, and how it ended."""

    def __init__(self, route: str, events: list[dict[str, Any]]) -> None:
        self.thought = self.said = self.arguments = ""
        self.end: str | None = None
        self.by: str | None = None
        {CHAT: self._chat, RESPONSES: self._responses, MESSAGES: self._messages}[route](events)

    def _chat(self, events: list[dict[str, Any]]) -> None:
        for choice in (choice for event in events for choice in event["choices"]):
            part = choice.get("delta") or choice.get("message") or {}
            self.thought += part.get("reasoning") or ""
            self.said += part.get("content") or ""
            for call in part.get("tool_calls") or ():
                self.arguments += call["function"].get("arguments") or ""
            self.end = choice["finish_reason"] or self.end
            self.by = choice.get("stop_reason") or self.by

    def _responses(self, events: list[dict[str, Any]]) -> None:
        whole = events[-1].get("response") or events[-1]
        for item in whole["output"]:
            texts = "".join(part["text"] for part in item.get("content") or ())
            self.thought += texts if item["type"] == "reasoning" else ""
            self.said += texts if item["type"] == "message" else ""
            self.arguments += item.get("arguments") or ""
        self.end = whole["status"]

    def _messages(self, events: list[dict[str, Any]]) -> None:
        for event in events:
            for block in event.get("content") or ():
                self.thought += block.get("thinking") or ""
                self.said += block.get("text") or ""
                self.arguments += json.dumps(block["input"]) if block["type"] == "tool_use" else ""
            delta = event.get("delta") or {}
            self.thought += delta.get("thinking") or ""
            self.said += delta.get("text") or ""
            self.arguments += delta.get("partial_json") or ""
            self.end = event.get("stop_reason") or delta.get("stop_reason") or self.end


def events(response: httpx.Response) -> Iterator[dict[str, Any]]:
    assert response.status_code == 200, response.text
    if not response.headers["content-type"].startswith("text/event-stream"):
        yield response.json()
        return
    for line in response.text.splitlines():
        if line.startswith("data: {"):
            yield json.loads(line.removeprefix("data: "))


def ask(thinking_pod: Pod, route: str, stream: bool, *fields: dict[str, Any]) -> Told:  # noqa: FBT001 - a case
    body = {"model": "tiny", "temperature": 0, "stream": stream, **BODIES[route]}
    for more in fields:
        body |= more
    return Told(
        route, list(events(httpx.post(thinking_pod.url + route, json=body, timeout=openai.TIMEOUT_S)))
    )


cases = pytest.mark.parametrize("stream", [False, True])
routes = pytest.mark.parametrize("route", [CHAT, RESPONSES, MESSAGES])


@cases
@routes
def test_a_forced_call_comes_after_the_thinking(thinking_pod: Pod, route: str, stream: bool) -> None:  # noqa: FBT001 - a case
    told = ask(thinking_pod, route, stream, CALLS[route], THINKING)
    assert told.thought.strip()
    assert json.loads(told.arguments)["mood"] in ("good", "bad")
    assert told.end == {CHAT: "tool_calls", RESPONSES: "completed", MESSAGES: "tool_use"}[route]


@cases
@routes
def test_json_comes_after_the_thinking(thinking_pod: Pod, route: str, stream: bool) -> None:  # noqa: FBT001 - a case
    told = ask(thinking_pod, route, stream, ANSWERS[route], THINKING)
    assert told.thought.strip()
    assert json.loads(told.said)["mood"] in ("good", "bad")
    assert told.end == {CHAT: "stop", RESPONSES: "completed", MESSAGES: "end_turn"}[route]


@cases
@pytest.mark.parametrize("route", [CHAT, RESPONSES])
def test_a_stop_token_while_it_thinks_does_not_end_it(thinking_pod: Pod, route: str, stream: bool) -> None:  # noqa: FBT001 - a case
    pushed = {"stop_token_ids": [PUSHED], "logit_bias": {str(PUSHED): 20}}
    told = ask(thinking_pod, route, stream, ANSWERS[route], THINKING, pushed)
    if told.end not in ("length", "incomplete"):  # what the push makes of its thoughts is the model's affair
        assert json.loads(told.said)["mood"] in ("good", "bad")


@cases
@pytest.mark.parametrize("asked", [CALLS[CHAT], ANSWERS[CHAT]])
def test_a_model_that_wants_to_end_while_it_thinks_does_not(
    thinking_pod: Pod,
    asked: dict[str, Any],
    stream: bool,  # noqa: FBT001 - a case
) -> None:
    told = ask(thinking_pod, CHAT, stream, asked, THINKING, {"logit_bias": {str(EOS): 100}})
    assert json.loads(told.arguments or told.said)["mood"] in ("good", "bad")
    told = ask(thinking_pod, CHAT, stream, asked, THINKING, {"max_tokens": 4})
    assert (told.end, told.arguments, told.said) == ("length", "", "")


@cases
@routes
@pytest.mark.parametrize("stop", ["about", '"mood'])
def test_a_stop_string_before_the_answer_is_whole_is_told(
    thinking_pod: Pod,
    route: str,
    stream: bool,  # noqa: FBT001 - a case
    stop: str,
) -> None:
    if route == RESPONSES:
        stopped = {"stop": [stop]}
    else:
        stopped = {"stop_sequences" if route == MESSAGES else "stop": [stop]}
    told = ask(thinking_pod, route, stream, CALLS[route], THINKING, stopped)
    assert told.end == {CHAT: "length", RESPONSES: "incomplete", MESSAGES: "stop_sequence"}[route]
    assert told.by in {None, stop}


@cases
@pytest.mark.parametrize(
    ("route", "off"),
    [
        (CHAT, {"chat_template_kwargs": {"enable_thinking": False}}),
        (CHAT, {"reasoning_effort": "none"}),
        (RESPONSES, {"chat_template_kwargs": {"enable_thinking": False}}),
        (MESSAGES, {"thinking": {"type": "disabled"}}),
    ],
)
def test_thinking_that_is_switched_off_is_none(
    thinking_pod: Pod,
    route: str,
    off: dict[str, Any],
    stream: bool,  # noqa: FBT001 - a case
) -> None:
    told = ask(thinking_pod, route, stream, CALLS[route], off)
    assert not told.thought.strip()
    assert json.loads(told.arguments)["mood"] in ("good", "bad")


@cases
def test_an_answer_whose_prompt_has_closed_the_thinking_is_no_thought(
    thinking_pod: Pod,
    stream: bool,  # noqa: FBT001 - a case
) -> None:
    thought = {"role": "assistant", "content": "<think>\nI see.\n</think>\n\n"}
    going_on = {"continue_final_message": True, "add_generation_prompt": False}
    messages = {"messages": [*MESSAGE["messages"], thought], **going_on}
    told = ask(thinking_pod, CHAT, stream, ANSWERS[CHAT], messages)
    assert (told.thought, json.loads(told.said)["mood"] in ("good", "bad")) == ("", True)


@cases
def test_thinking_that_is_left_out_of_the_answer_does_not_take_the_answer_along(
    thinking_pod: Pod,
    stream: bool,  # noqa: FBT001 - a case
) -> None:
    told = ask(thinking_pod, CHAT, stream, ANSWERS[CHAT], THINKING, {"include_reasoning": False})
    assert (told.thought, json.loads(told.said)["mood"] in ("good", "bad")) == ("", True)


@pytest.fixture(scope="module")
def told(thinking_pod: Pod) -> dict[tuple[str, str], dict[str, Any]]:
    """What every call gave, by the libraries' own Python."""
    try:
        python = venvs.path("clients") / "bin/python"
    except MissingToolError as error:
        unavailable(error)
    done = subprocess.run(
        [python, "-m", "support.clients", thinking_pod.url],
        env={**os.environ, "PYTHONPATH": str(TESTS)},
        capture_output=True,
        text=True,
        timeout=LIBRARIES_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return {(line["library"], line["call"]): line for line in lines}


def of(shape: str) -> list[Case]:
    return [case for case in clients.CASES if isinstance(case.gives, str) == (shape == "objects")]


def call(case: Case) -> str:
    return f"{case.library}: {case.call}"


@pytest.mark.parametrize("case", of("objects"), ids=call)
def test_a_library_gives_what_was_asked_for(told: Any, case: Case) -> None:
    line = told[case.library, case.call]
    assert "error" not in line, json.dumps(line["error"])[:3000]
    assert line["values"]
    for value in line["values"]:
        jsonschema.validate(value, clients.schema(str(case.gives)))


@pytest.mark.parametrize("case", of("errors"), ids=call)
def test_a_library_shows_what_is_wrong(told: Any, case: Case) -> None:
    line = told[case.library, case.call]
    assert "error" in line, line
    assert isinstance(case.gives, dict)
    assert case.gives.items() <= line["error"].items(), line
    assert line["error"]["request_id"] or "status" not in case.gives, line
