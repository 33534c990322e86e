"""A model that thinks before it answers, by HTTP and through the libraries that people use.

The sample, whose chat template takes `enable_thinking`; the libraries in an environment of their own
(requirements/clients.txt).
"""

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
import jsonschema
import pytest
from devtools import venvs
from devtools.golang import MissingToolError

from support import openai, routes
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


def ask(thinking_pod: Pod, route: str, stream: bool, *fields: dict[str, Any]) -> Told:  # noqa: FBT001 - a case
    body = {"model": "tiny", "temperature": 0, "stream": stream, **BODIES[route]}
    for more in fields:
        body |= more
    response = httpx.post(thinking_pod.url + route, json=body, timeout=openai.TIMEOUT_S)
    assert response.status_code == 200, response.text
    return Told(route, routes.events(response) if stream else [response.json()])


ROUTES = (CHAT, RESPONSES, MESSAGES)
CALLED = {CHAT: "tool_calls", RESPONSES: "completed", MESSAGES: "tool_use"}
SAID = {CHAT: "stop", RESPONSES: "completed", MESSAGES: "end_turn"}
OFF = {"chat_template_kwargs": {"enable_thinking": False}}
THOUGHT = {"role": "assistant", "content": "<think>\nI see.\n</think>\n\n"}
CONTINUED = {
    "messages": [*MESSAGE["messages"], THOUGHT],
    "continue_final_message": True,
    "add_generation_prompt": False,
}
WANTS_TO_END = {"logit_bias": {str(EOS): 100}}
# What is asked, on which route, and whether a thought is told.
CASES: dict[str, tuple[str, Sequence[dict[str, Any]], bool]] = {
    **{f"call, {route}": (route, (CALLS[route], THINKING), True) for route in ROUTES},
    **{f"JSON, {route}": (route, (ANSWERS[route], THINKING), True) for route in ROUTES},
    "call, wants to end": (CHAT, (CALLS[CHAT], THINKING, WANTS_TO_END), True),
    "JSON, wants to end": (CHAT, (ANSWERS[CHAT], THINKING, WANTS_TO_END), True),
    "switched off by the template": (CHAT, (CALLS[CHAT], OFF), False),
    "switched off by effort": (CHAT, (CALLS[CHAT], {"reasoning_effort": "none"}), False),
    "switched off in Responses": (RESPONSES, (CALLS[RESPONSES], OFF), False),
    "switched off in Messages": (MESSAGES, (CALLS[MESSAGES], {"thinking": {"type": "disabled"}}), False),
    "closed in the prompt": (CHAT, (ANSWERS[CHAT], CONTINUED), False),
    "left out of the answer": (CHAT, (ANSWERS[CHAT], THINKING, {"include_reasoning": False}), False),
}
streams = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


@streams
@pytest.mark.parametrize("case", CASES)
def test_a_call_or_json_comes_whole_behind_the_thinking(thinking_pod: Pod, case: str, stream: bool) -> None:  # noqa: FBT001 - a case
    route, fields, thinks = CASES[case]
    told = ask(thinking_pod, route, stream, *fields)
    calls = CALLS[route] in fields
    assert json.loads(told.arguments if calls else told.said)["mood"] in ("good", "bad")
    assert told.end == (CALLED if calls else SAID)[route]
    assert bool(told.thought.strip()) == thinks


@streams
@pytest.mark.parametrize("route", ROUTES)
def test_auto_beside_a_schema_gives_a_call_or_an_answer(thinking_pod: Pod, route: str, stream: bool) -> None:  # noqa: FBT001 - a case
    choice = {"type": "auto"} if route == MESSAGES else "auto"
    told = ask(thinking_pod, route, stream, CALLS[route], ANSWERS[route], {"tool_choice": choice})
    assert json.loads(told.arguments or told.said)["mood"] in ("good", "bad")


@pytest.mark.parametrize("last", ["</think>\n\n", ""], ids=["closed last", "open last"])
def test_each_chat_of_a_batch_is_read_by_its_own_prompt(thinking_pod: Pod, last: str) -> None:
    ends = ["", "</think>\n\n"] if last else ["</think>\n\n", ""]
    chats = [[*MESSAGE["messages"], {**THOUGHT, "content": f"<think>\nI see.\n{end}"}] for end in ends]
    body = {
        "model": "tiny",
        "temperature": 0,
        **BODIES[CHAT],
        **ANSWERS[CHAT],
        **CONTINUED,
        "messages": chats,
    }
    response = httpx.post(f"{thinking_pod.url}{CHAT}/batch", json=body, timeout=openai.TIMEOUT_S)
    for end, choice in zip(ends, response.json()["choices"], strict=True):
        message = choice["message"]
        assert json.loads(message["content"])["mood"] in ("good", "bad")
        assert bool(message["reasoning"]) == (not end)


@streams
@pytest.mark.parametrize("route", [CHAT, RESPONSES])
def test_a_stop_token_while_it_thinks_does_not_end_it(thinking_pod: Pod, route: str, stream: bool) -> None:  # noqa: FBT001 - a case
    pushed = {"stop_token_ids": [PUSHED], "logit_bias": {str(PUSHED): 20}}
    told = ask(thinking_pod, route, stream, ANSWERS[route], THINKING, pushed)
    if told.end not in ("length", "incomplete"):  # what the push makes of its thoughts is the model's affair
        assert json.loads(told.said)["mood"] in ("good", "bad")


@streams
@pytest.mark.parametrize("asked", [CALLS[CHAT], ANSWERS[CHAT]], ids=["call", "JSON"])
def test_too_few_tokens_to_think_are_told(thinking_pod: Pod, asked: Any, stream: bool) -> None:  # noqa: FBT001 - a case
    told = ask(thinking_pod, CHAT, stream, asked, THINKING, {"max_tokens": 4})
    assert (told.end, told.arguments, told.said) == ("length", "", "")


@streams
@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("stop", ["about", '"mood'])
def test_a_stop_string_before_the_answer_is_whole_is_told(
    thinking_pod: Pod,
    route: str,
    stream: bool,  # noqa: FBT001 - a case
    stop: str,
) -> None:
    stopped = {"stop_sequences" if route == MESSAGES else "stop": [stop]}
    told = ask(thinking_pod, route, stream, CALLS[route], THINKING, stopped)
    assert told.end == {CHAT: "length", RESPONSES: "incomplete", MESSAGES: "stop_sequence"}[route]
    assert told.by in {None, stop}


def test_each_library_gives_what_was_asked_for_or_shows_what_is_wrong(thinking_pod: Pod) -> None:
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
    wrong = [line for line in lines if not (fails_so(line) if line["fails"] else gives(line))]
    assert not wrong, "\n".join(str({**line, "schema": ""})[:1500] for line in wrong)
    assert len(lines) > 30


def gives(line: dict[str, Any]) -> bool:
    judge = jsonschema.Draft202012Validator(line["schema"])
    return bool(line.get("values")) and all(map(judge.is_valid, line["values"]))


def fails_so(line: dict[str, Any]) -> bool:
    error = line.get("error", {})
    return line["fails"].items() <= error.items() and bool(error["request_id"] or "class" in line["fails"])
