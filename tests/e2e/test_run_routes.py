"""A whole pod with two ranks: every HTTP route times every kind of constraint, tools, a trace."""

import json
import os
import re
import secrets
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import jsonschema
import pytest
from devtools.tinytasks import task

from support import openai, routes
from support.pod import Pod, gone
from support.routes import CONSTRAINTS, ROUTES, TIMEOUT_S, Constraint, events

pytestmark = [pytest.mark.engine, pytest.mark.timeout(1200)]

LONG_TOKENS = 400
BROKEN = Constraint("json", {"type": "object", "properties": {"age": {"type": "integr"}}}, "x")
STREAMED = [
    (name, stream) for name, route in ROUTES.items() for stream in (False, True) if route.pieces or not stream
]


Case = tuple[str, str, bool]


def cases() -> Iterator[Case]:
    """Yield route, constraint and whether the answer is streamed."""
    for name, stream in STREAMED:
        for constraint in CONSTRAINTS:
            if constraint in ROUTES[name].kinds:
                yield name, constraint, stream


@pytest.fixture(scope="module")
def responses(pod: Pod) -> Iterator[dict[Case, Future[httpx.Response]]]:
    """Every case's answer; all are asked at once, so that they share batches."""
    routes.tokenizer()  # imported once, not by every thread
    with ThreadPoolExecutor(16) as pool:
        yield {
            (route, constraint, stream): pool.submit(
                ROUTES[route].ask, pod.url, CONSTRAINTS[constraint], stream=stream
            )
            for route, constraint, stream in cases()
        }


@pytest.fixture(autouse=True)
def nothing_is_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """After each test no request runs and no lease is held, whatever became of its requests."""
    yield
    if "pod" not in request.fixturenames:
        return
    pod: Pod = request.getfixturevalue("pod")
    if pod.child.poll() is None:
        pod.wait(lambda: running(pod) == 0)


def running(pod: Pod) -> float:
    """Return requests in the engine plus their leases in the sidecar, by their own metrics."""
    sidecar = f"http://127.0.0.1:{pod.ports.sidecar}"
    lines = [line for url in (pod.url, sidecar) for line in httpx.get(f"{url}/metrics").text.splitlines()]
    names = ("vllm:num_requests_running{", "vllm:num_requests_waiting{", "guidedmodel_grammar_leases ")
    found = [float(line.rpartition(" ")[2]) for line in lines if line.startswith(names)]
    assert len(found) == len(names)
    named = httpx.get(f"{sidecar}/status").json()["grammars"]
    return sum(found) - sum(grammar["state"] in {"Ready", "Stale"} for grammar in named)


@pytest.mark.parametrize(
    "case", list(cases()), ids=lambda case: f"{case[0]}-{case[1]}{'-streamed' * case[2]}"
)
def test_answers_meet_their_constraint(responses: dict[Case, Future[httpx.Response]], case: Case) -> None:
    route, constraint, _ = case
    answers = ROUTES[route].answers(responses[case].result())
    assert len(answers) == (2 if route == "batch chat" else 1)
    for answer in answers:
        CONSTRAINTS[constraint].check(answer)


@pytest.mark.parametrize(("route", "stream"), STREAMED)
def test_a_broken_schema_is_one_400_in_the_routes_own_form(pod: Pod, route: str, stream: bool) -> None:  # noqa: FBT001 - a case
    response = ROUTES[route].ask(pod.url, BROKEN, stream=stream)
    assert openai.error_code(response) == (400, "grammar_invalid")
    others = {
        "Anthropic messages": "output_config.format.schema",
        "tokens in and out": "sampling_params.structured_outputs.json",
    }
    place = others.get(route, "structured_outputs.json")
    assert response.json()["error"]["param"] == f"{place}.properties.age.type"
    assert (response.json().get("type") == "error") == (route == "Anthropic messages")


class TestBackends:
    def test_one_batch_holds_both(self, pod: Pod) -> None:
        """Each request names its library; upstream knows one per engine, the first request's."""
        names = ["json", "json_object", "regex", "choice", "EBNF", "Lark"]
        asked = [(name, backend) for name in names for backend in ("xgrammar", "guidance")]
        # Each reads its own language of grammars.
        asked.remove(("EBNF", "guidance"))
        asked.remove(("Lark", "xgrammar"))
        traces = [secrets.token_hex(16) for _ in asked]

        def ask(name: str, backend: str, trace_id: str) -> str:
            constraint = CONSTRAINTS[name]
            chosen = {"vllm_xargs": {"guided_backend": backend}}
            return openai.text(
                openai.guided(
                    pod.url, constraint.prompt, constraint.kind, constraint.spec, trace_id=trace_id, **chosen
                )
            )

        with ThreadPoolExecutor(len(asked)) as pool:
            answers = list(pool.map(ask, *zip(*asked, strict=True), traces))
        for (name, backend), answer, trace_id in zip(asked, answers, traces, strict=True):
            CONSTRAINTS[name].check(answer)
            # Each process sends its own spans, when it has some.
            pod.wait(lambda trace_id=trace_id: any("guided.decode" in line for line in pod.trace(trace_id)))
            [decoded] = [line for line in pod.trace(trace_id) if "guided.decode" in line]
            assert backend in decoded


# Only what ends by itself, and no token of whitespace alone (`logit_bias` below): where it never saw a
# prompt's like, the model writes either on and on.
ARGUMENTS = {
    "type": "object",
    "properties": {"colour": {"enum": ["red", "green", "blue"]}, "paid": {"type": "boolean"}},
    "required": ["colour", "paid"],
    "additionalProperties": False,
}
FILE_CARD = {"type": "function", "function": {"name": "file_card"}}


class TestTools:
    """Tool calling with the hermes parser; the model never learned it: each call is the grammar's work."""

    def tool(self, *, strict: bool = True, **parameters: Any) -> dict[str, Any]:
        function = {"name": "file_card", "parameters": {**ARGUMENTS, **parameters}}
        return {"type": "function", "function": {**function, **({"strict": True} if strict else {})}}

    def ask(self, pod: Pod, *, stream: bool = False, **fields: Any) -> httpx.Response:
        prompt = task("card").prompt("alice")
        bias = {str(token): -100 for token in routes.whitespace()}
        return openai.chat(pod.url, prompt, stream=stream, max_tokens=200, logit_bias=bias, **fields)

    @pytest.mark.parametrize("stream", [False, True])
    @pytest.mark.parametrize("choice", ["required", FILE_CARD], ids=["required", "named"])
    def test_a_forced_call_has_the_tools_arguments(self, pod: Pod, choice: Any, stream: bool) -> None:  # noqa: FBT001 - a case
        """Though the tool is not strict: most clients' libraries send it so."""
        tools = [self.tool(strict=False)]
        response = self.ask(pod, stream=stream, tools=tools, tool_choice=choice, parallel_tool_calls=False)
        name, arguments = called(response)
        assert name == "file_card"
        jsonschema.validate(json.loads(arguments), ARGUMENTS)

    @pytest.mark.parametrize("stream", [False, True])
    def test_auto_beside_a_schema_gives_either(self, pod: Pod, stream: bool) -> None:  # noqa: FBT001 - a case
        schema = {"enum": ["stone", "water"]}
        wanted = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
        response = self.ask(pod, stream=stream, tools=[self.tool()], response_format=wanted)
        name, text = called(response)
        if name:
            jsonschema.validate(json.loads(text), ARGUMENTS)
        else:
            assert json.loads(text) in schema["enum"]

    def test_auto_beside_a_schema_gives_either_on_other_routes_too(self, pod: Pod) -> None:
        words = ["stone", "water"]
        form = {"type": "json_schema", "schema": {"enum": words}}
        tool = {"type": "function", "name": "file_card", "parameters": ARGUMENTS}
        body = {"input": "stone", "max_output_tokens": 200, "temperature": 0, "tools": [tool]}
        body["text"] = {"format": {**form, "name": "x"}}
        answer = httpx.post(f"{pod.url}/v1/responses", json=body, timeout=TIMEOUT_S).json()
        (item,) = answer["output"]
        is_call = item["type"] == "function_call"
        assert is_call or json.loads(item["content"][0]["text"]) in words

        tool = {"name": "file_card", "input_schema": ARGUMENTS}
        body = {"model": "tiny", "messages": [{"role": "user", "content": "stone"}], "max_tokens": 200}
        body |= {"tools": [tool], "output_config": {"format": form}}
        answer = httpx.post(f"{pod.url}/v1/messages", json=body, timeout=TIMEOUT_S).json()
        (item,) = answer["content"]
        assert item["type"] == "tool_use" or json.loads(item["text"]) in words

    def test_auto_is_guided_too(self, pod: Pod) -> None:
        trace_id = secrets.token_hex(16)
        assert self.ask(pod, tools=[self.tool()], trace_id=trace_id).status_code == 200
        pod.wait(lambda: pod.trace(trace_id))
        assert "kind structural_tag" in pod.trace(trace_id)[0]


def called(response: httpx.Response) -> tuple[str, str]:
    """Return the one call's name and arguments; "" and the text where there is no call."""
    assert response.status_code == 200, response.text
    if response.headers["content-type"].startswith("text/event-stream"):
        parts = [choice["delta"] for event in events(response) for choice in event["choices"]]
    else:
        parts = [choice["message"] for choice in response.json()["choices"]]
    calls = [call["function"] for part in parts for call in part.get("tool_calls") or ()]
    if not calls:
        return "", "".join(part.get("content") or "" for part in parts)
    name = "".join(call.get("name") or "" for call in calls)
    return name, "".join(call.get("arguments") or "" for call in calls)


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


def test_killing_the_sidecars_service_leaves_a_running_request_untouched(pod: Pod) -> None:
    # Proven before: a response is held until its grammar is, by when all of it may be there.
    assert openai.guided(pod.url, "x", "regex", "[a-z ]+", max_tokens=1).status_code == 200
    containers, service = pod.containers(), pod.sidecar.service_pid()
    assert service
    letters = {"structured_outputs": {"regex": "[a-z ]+"}, "min_tokens": LONG_TOKENS}
    begun = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(openai.streamed_tokens, pod.url, begun, max_tokens=LONG_TOKENS, **letters)
        assert begun.wait(60)
        os.kill(service, signal.SIGKILL)
        assert running.result() == LONG_TOKENS
    pod.wait(lambda: pod.sidecar.service_pid() not in {None, service})
    assert pod.containers() == containers
    pod.wait(lambda: openai.guided(pod.url, "x", "choice", ["after"]).status_code == 200)


def test_nothing_is_left_when_the_command_is_killed(pod: Pod) -> None:
    """Last of the modules that share the pod: it ends here."""
    assert len(pod.processes()) > 8  # command, guards, launcher, API server, core, ranks, sidecar
    folder = Path(pod.config.run_dir).parent
    pod.kill()
    assert gone(pod)
    assert not folder.exists()
