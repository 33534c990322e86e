"""Admission in a real API server with a real engine; only the grammar service is a fake, on a real wire."""

import http.client
import json
import re
import secrets
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, ClassVar

import httpx
import pytest

from guided_contract import records, wire
from guided_engine.admission.gate import ROUTES as ROUTES_SERVED
from guided_engine.admission.gate import UNGUIDED_ROUTES
from support import routes
from support.engine import wait_until
from support.fake_service import llguidance_text
from support.forbidden import ROUTES_PATH, TOUCH_PATH, TOUCHES
from support.routes import CARD
from support.stage import Stage, completion, error_of, guided, staged

LINGERS = {"logits_processors": "lingers"}
pytestmark = pytest.mark.engine

# POST routes of vLLM that never ask the engine for tokens.
NOT_GENERATING = (
    *("/tokenize", "/detokenize", "/ping", "/v1/messages/count_tokens", "/v1/responses/{response_id}/cancel"),
    *("/scale_elastic_ep", "/is_scaling_elastic_ep", "/inference/v1/abort_requests", "/v1/load_lora_adapter"),
    *("/v1/unload_lora_adapter", "/load_lora_adapter", "/unload_lora_adapter"),
)


# Where each route's clients write a schema.
SCHEMA_AT = {
    "/v1/completions": "response_format.json_schema.schema",
    "/v1/chat/completions": "response_format.json_schema.schema",
    "/v1/responses": "text.format.schema",
    "/v1/messages": "output_config.format.schema",
    "/inference/v1/generate": "sampling_params.structured_outputs.json",
}
ROUTES = tuple(SCHEMA_AT)


@pytest.fixture(scope="module")
def engine_stage() -> Iterator[Stage]:
    with staged() as stage:
        yield stage


@pytest.fixture
def stage(engine_stage: Stage) -> Iterator[Stage]:
    """The shared engine, idle and with nothing remembered of earlier tests."""
    engine_stage.reset()
    yield engine_stage
    wait_until(lambda: engine_stage.running() == 0)
    assert not engine_stage.native_calls.exists(), engine_stage.native_calls.read_text()


def test_unsampled_trace_stays_unsampled(stage: Stage) -> None:
    unsampled = stage.client.headers["traceparent"][:-2] + "00"
    stage.client.post("/v1/completions", json=completion(), headers={"traceparent": unsampled})
    record = stage.record()
    assert (record.trace_id, record.sampled) == (stage.trace_id, False)
    sampled = secrets.token_hex(16)  # a later one; vLLM exports in order
    headers = {"traceparent": f"00-{sampled}-{'1' * 16}-01"}
    stage.client.post("/v1/completions", json=completion(), headers=headers)
    wait_until(lambda: sampled in {span.trace_id for span in stage.collector.kept.spans}, 30)
    assert stage.trace_id not in {span.trace_id for span in stage.collector.kept.spans}


def test_no_text_of_a_request_is_in_what_the_engine_tells_of_it(stage: Stage) -> None:
    """vLLM's own span, the API server's record and the ranks', of what was asked, allowed and answered."""
    canary = "tweetzq7"
    body = guided("/v1/completions", {"enum": [canary]}) | {"prompt": f"Say {canary}"}
    response = stage.client.post("/v1/completions", json=body)
    assert response.json()["choices"][0]["text"] == f'"{canary}"'
    datagrams = stage.datagrams(2)
    kinds = {type(records.decode(datagram)) for datagram in datagrams}
    assert kinds >= {records.HttpRequest, records.Decode}
    [record] = [one for one in map(records.decode, datagrams) if isinstance(one, records.HttpRequest)]
    assert stage.engine_span(stage.trace_id, record.span_id)
    exported = b"".join([*datagrams, *stage.collector.kept.bodies])
    assert stage.trace_id.encode() in exported
    assert canary.encode() not in exported


def test_service_away_is_503_for_guided_requests_only(stage: Stage) -> None:
    stage.service.stop()
    try:
        assert stage.client.post("/v1/completions", json=completion()).status_code == 200
        response = stage.client.post("/v1/completions", json=guided("/v1/completions", {"const": 1}))
        assert response.status_code == 503
        assert error_of(response)["code"] == "grammar_service_unavailable"
        assert int(response.headers["retry-after"]) > 0
    finally:
        stage.service.start()
        stage.service.wait_for(wire.Hello, lambda hello: hello.role == "api")
        wait_until(lambda: stage.service.peers("rank") and stage.service.peers("api"))


def _unguided(route: str, **more: Any) -> dict[str, Any]:
    body = guided(route, {}, **more)
    body.get("sampling_params", {}).pop("structured_outputs", None)
    asked = ("response_format", "text", "output_config")
    return {name: value for name, value in body.items() if name not in asked}


@pytest.mark.parametrize("route", ROUTES)
def test_keys_that_vllm_does_not_know_are_named(stage: Stage, route: str) -> None:
    response = stage.client.post(route, json=_unguided(route) | {"regex": "a", "extra_body": {"top_k": 3}})
    assert response.status_code == 200, response.text
    assert json.loads(response.headers["x-guidedmodel-ignored"]) == ["regex", "extra_body"]
    assert stage.record().ignored_keys == 2
    response = stage.client.post(route, json=_unguided(route))
    assert "x-guidedmodel-ignored" not in response.headers
    assert stage.record().kind is None
    assert not stage.service.received(wire.Prepare)


PLAIN = {"name": "f", "parameters": CARD}


@pytest.mark.parametrize(
    ("route", "at", "tool", "choice"),
    [
        (
            "/v1/chat/completions",
            "tools[0].function.parameters",
            {"type": "function", "function": PLAIN},
            {"type": "function", "function": {"name": "f"}},
        ),
        ("/v1/responses", "tools[0].parameters", {"type": "function", **PLAIN}, "required"),
        ("/v1/messages", "tools[0].input_schema", {"name": "f", "input_schema": CARD}, {"type": "any"}),
    ],
)
def test_a_forced_calls_arguments_are_held_to_the_tool(
    stage: Stage, route: str, at: str, tool: Any, choice: Any
) -> None:
    """Though no tool is strict; and a fault in its parameters is told where the client wrote them."""
    path = "$.format.tags[1].content.json_schema.properties.name.type"
    stage.service.refuse("", "grammar_invalid", f"{path}: no such type", path=path)
    response = stage.client.post(route, json=_unguided(route) | {"tools": [tool], "tool_choice": choice})
    assert response.status_code == 400, response.text
    asked = stage.service.wait_for(wire.Prepare)
    contents = [tag["content"]["json_schema"] for tag in json.loads(asked.spec)["format"]["tags"]]
    assert contents == [CARD] * 2
    error = error_of(response)
    assert error["param"] == f"{at}.properties.name.type"
    assert error["message"] == f"{at}.properties.name.type: no such type"
    assert asked.kind == stage.record().kind == "structural_tag"


def test_other_routes_refuse_guided_requests(stage: Stage) -> None:
    assert stage.client.post("/invocations", json=completion(max_tokens=4)).status_code == 200
    body = completion(max_tokens=4, structured_outputs={"regex": "a"})
    response = stage.client.post("/invocations", json=body)
    assert response.status_code == 400
    assert error_of(response)["code"] == "request_not_admitted"


def test_every_route_of_vllm_is_known(stage: Stage) -> None:
    """A new one is refused for guided requests until somebody has thought about it; this is where to."""
    found = stage.client.get(ROUTES_PATH).json()
    assert {method for _, method in found} <= {"GET", "HEAD", "POST", "Mount"}
    posted = {path for path, method in found if method == "POST" and not path.endswith("render")}
    assert posted - ROUTES_SERVED - UNGUIDED_ROUTES - set(NOT_GENERATING) == set()
    assert posted >= ROUTES_SERVED


def test_no_http_route_runs_native_code(stage: Stage) -> None:
    """Each route that the application really has, asked in every form; one that a later vLLM adds, too."""
    stage.service.refuse("", "grammar_invalid")
    bodies = list(routes.variants())
    asked = 0
    for path, method in stage.client.get(ROUTES_PATH).json():
        url = re.sub(r"{\w+}", "x", path)
        if method in {"GET", "HEAD"}:
            stage.client.request(method, url)
        elif method == "POST":
            statuses = [stage.client.post(url, json=body).status_code for body in bodies]
            asked += statuses.count(400)
        else:
            assert (path, method) == ("/metrics", "Mount"), "a route of a kind that this test cannot drive"
    assert asked > len(bodies) * len(ROUTES_SERVED) / 2, "most forms fit some route, and were refused there"


def test_a_touch_of_the_libraries_would_be_seen(stage: Stage) -> None:
    """As the requests above would be, had they come to native code: all of it is out of reach."""
    refusals = stage.client.get(TOUCH_PATH).json()
    assert len(refusals) == len(TOUCHES)
    assert all("native grammar code in the API server" in refusal for refusal in refusals), refusals
    assert len(stage.native_calls.read_text().splitlines()) == len(TOUCHES)
    stage.native_calls.unlink()


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("begun", [False, True], ids=["preparing", "generating"])
def test_who_leaves_releases(stage: Stage, *, stream: bool, begun: bool) -> None:
    if begun:
        stage.service.hold_back("")
    else:
        stage.service.script["400"] = lambda _asked: None
    schema = {"type": "string", "minLength": 400}
    body = guided("/v1/completions", schema, stream=stream, max_tokens=450, vllm_xargs=LINGERS)
    headers = {**stage.client.headers, "content-type": "application/json"}
    connection = http.client.HTTPConnection(stage.client.base_url.host, stage.client.base_url.port)
    connection.request("POST", "/v1/completions", json.dumps(body), headers)
    asked = stage.service.wait_for(wire.Prepare)
    if begun:
        wait_until(lambda: asked.id in stage.service.held_back)
    connection.close()
    stage.wait_released(asked.id)
    assert stage.record().status == 499


def test_each_prompt_has_one_lease_for_all_its_sequences(stage: Stage) -> None:
    body = guided("/v1/completions", {"enum": ["stone"]}, n=3, temperature=1) | {"prompt": ["a", "b"]}
    response = stage.client.post("/v1/completions", json=body)
    assert [choice["text"] for choice in response.json()["choices"]] == ['"stone"'] * 6
    wait_until(lambda: len(stage.released()) == 2)


def test_parallel_requests_keep_their_verdicts(stage: Stage) -> None:
    stage.service.refuse("bad", "grammar_dead_end")

    def ask(number: int) -> int:
        schema = {"const": "bad"} if number % 2 else {"enum": ["stone"]}
        body = guided("/v1/completions", schema, stream=number % 4 < 2)
        return httpx.post(f"{stage.engine.url}/v1/completions", json=body, timeout=60).status_code

    with ThreadPoolExecutor(16) as pool:
        assert list(pool.map(ask, range(16))) == [200, 400] * 8


class TestSequenceFailures:
    """A sequence that fails while generating: a processor raises."""

    def test_whole_answer_is_422(self, stage: Stage) -> None:
        body = completion(ignore_eos=True, vllm_xargs={"logits_processors": "fails"})
        response = stage.client.post("/v1/completions", json=body)
        assert response.status_code == 422
        assert error_of(response)["code"] == "sequence_processor_failed"
        assert stage.record().error_code == "sequence_processor_failed"

    @pytest.mark.parametrize("route", ROUTES)
    def test_stream_that_has_begun_ends_with_the_error(self, stage: Stage, route: str) -> None:
        chosen = {"logits_processors": "fails-in-stream"}
        body = guided(route, {"type": "string", "minLength": 99}, stream=True, vllm_xargs=chosen)
        status, data = stage.failing_stream(route, body)
        assert status == 200
        last = json.loads(next(line for line in reversed(data) if line != "[DONE]"))
        error = last if route == "/v1/responses" else last["error"]
        assert error["code"] == stage.record().error_code == "sequence_processor_failed"
        stage.wait_released(stage.service.wait_for(wire.Prepare).id)

    def test_every_choice_ends_with_the_one_that_fails(self, stage: Stage) -> None:
        """n > 1 streamed: the error is the last event, and no sibling goes on behind it."""
        body = completion(
            n=3,
            max_tokens=400,
            ignore_eos=True,
            stream=True,
            vllm_xargs={"logits_processors": "first-fails-in-stream"},
            temperature=1,
        )
        status, data = stage.failing_stream("/v1/completions", body)
        assert status == 200
        assert json.loads(data[-2])["error"]["code"] == "sequence_processor_failed"
        assert len(data) < 300  # 1200 tokens were asked for
        wait_until(lambda: stage.running() == 0)


class TestVerdicts:
    """What is said of a grammar at once; or after ranks have loaded it and the engine has begun with it."""

    LONG: ClassVar = {"type": "string", "minLength": 400}

    @pytest.fixture
    def begin(self, stage: Stage) -> Iterator[Callable[..., tuple[Future[httpx.Response], int]]]:
        """Send a request, and return its response to come and its id when ranks have loaded its grammar."""
        with ThreadPoolExecutor(4) as threads:

            def begin(route: str, body: dict[str, Any]) -> tuple[Future[httpx.Response], int]:
                stage.service.hold_back("")
                coming = threads.submit(stage.client.post, route, json=body)
                number = stage.service.wait_for(wire.Prepare).id
                wait_until(lambda: number in stage.service.held_back)
                return coming, number

            yield begin

    @pytest.mark.parametrize("late", [False, True], ids=["at once", "by its proof"])
    @pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
    @pytest.mark.parametrize("route", ROUTES)
    def test_a_refusal_is_400(
        self, stage: Stage, begin: Any, route: str, *, stream: bool, late: bool
    ) -> None:
        refused: Any = {"code": "grammar_invalid", "message": "$.type: no such type", "path": "$.type"}
        body = guided(route, self.LONG, stream=stream, max_tokens=450)
        if late:
            coming, number = begin(route, body)
            stage.service.judge(wire.Refused(id=number, **refused))
            response = coming.result(30)
        else:
            stage.service.refuse("", **refused)
            response = stage.client.post(route, json=body)
        record, path = stage.record(), f"{SCHEMA_AT[route]}.type"
        assert response.status_code == 400
        assert response.headers["content-type"] == "application/json"
        # As Anthropic's clients want.
        assert (response.json().get("type") == "error") == (route == "/v1/messages")
        assert error_of(response) == {
            "message": f"{path}: no such type",
            "type": "invalid_request_error",
            "param": path,
            "code": "grammar_invalid",
            "request_id": response.headers["x-request-id"],
            "trace_id": record.trace_id,
        }
        assert response.headers["traceresponse"] == f"00-{record.trace_id}-{record.span_id}-01"
        assert (record.status, record.error_code, record.route) == (400, "grammar_invalid", route)
        assert (record.kind, bool(record.grammar_key)) == ("json", late)

    @pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
    @pytest.mark.parametrize("route", ROUTES)
    def test_an_answer_waits_for_the_proof_though_it_is_whole(
        self, stage: Stage, begin: Any, route: str, *, stream: bool
    ) -> None:
        """And its ids are those of its record, of the client's trace and of vLLM's own span."""
        before = stage.steps()
        coming, number = begin(route, guided(route, {"enum": ["stone"]}, stream=stream))
        wait_until(lambda: stage.steps() > before and stage.running() == 0)
        assert not coming.done()
        stage.service.judge(wire.Proven(id=number, backend="guidance"))
        response = coming.result(30)
        stage.wait_released(number)
        assert response.status_code == 200
        in_tokens = route == "/inference/v1/generate"
        assert '\\"stone\\"' in response.text or stream or in_tokens
        record, asked = stage.record(), stage.service.wait_for(wire.Prepare)
        assert json.loads(asked.spec) == {"enum": ["stone"]}
        assert response.headers["traceresponse"] == f"00-{record.trace_id}-{record.span_id}-01"
        assert asked.traceparent == f"00-{stage.trace_id}-{record.span_id}-01"
        if route in {"/v1/completions", "/v1/chat/completions"}:
            answered = response.text if stream else json.dumps({"id": response.json()["id"]})
            name = re.search(r'"id": ?"([\w-]+)"', answered)
            assert name
            assert name[1] in response.headers["x-request-id"]
        assert (record.status, record.error_code, record.kind, record.stream) == (200, None, "json", stream)
        assert (record.trace_id, record.parent_span_id, record.sampled) == (stage.trace_id, "1" * 16, True)
        assert (bool(record.grammar_key), record.model) == (True, "tiny")
        engine = stage.engine_span(stage.trace_id, record.span_id).attributes
        assert engine["gen_ai.usage.completion_tokens"] > 0

    @pytest.mark.parametrize("more", [{"n": 2, "temperature": 1}, {"stream": True}], ids=["n", "stream"])
    def test_another_library_begins_it_anew(self, stage: Stage, begin: Any, more: dict[str, Any]) -> None:
        """The proof refused the first one's grammar; ranks have the other's in its place."""
        route = "/v1/completions"
        before = stage.steps()
        coming, number = begin(route, guided(route, {"enum": ["stone"]}) | more)
        wait_until(lambda: stage.steps() > before and stage.running() == 0)
        key = next(iter(stage.service.received(wire.Loaded))).key
        other = wire.Prepare(id=0, kind="json", spec='{"enum": ["water"]}', timeout_s=1)
        for rank in stage.service.peers("rank"):
            rank.send(wire.Load(key=key, backend="guidance", spec=llguidance_text(other)))
        wait_until(lambda: len(stage.service.received(wire.Loaded)) == 2)
        stage.service.judge(wire.Proven(id=number, backend="xgrammar"))
        response = coming.result(30)
        assert response.status_code == 200
        texts = re.findall(r'"text": ?("(?:[^"\\]|\\.)*")', response.text)
        assert "".join(map(json.loads, texts)) == '"water"' * more.get("n", 1)
        assert len(stage.service.received(wire.Prepare)) == 1

    def test_a_refusal_ends_all_of_a_request_in_the_engine(self, stage: Stage, begin: Any) -> None:
        before = stage.steps()
        more = {"n": 2, "temperature": 1, "prompt": ["a", "b", "c"]}
        body = guided("/v1/completions", self.LONG, max_tokens=450, vllm_xargs=LINGERS) | more
        coming, _ = begin("/v1/completions", body)
        wait_until(lambda: len(stage.service.held_back) == 3)
        for number in stage.service.held_back:
            stage.service.judge(wire.Refused(id=number, code="grammar_slow", message="slow"))
        assert error_of(coming.result(30))["code"] == "grammar_slow"
        wait_until(lambda: stage.running() == 0)
        assert stage.steps() - before < 400

    def test_what_the_proof_says_comes_before_a_sequences_own_failure(self, stage: Stage, begin: Any) -> None:
        chosen = {"logits_processors": "fails"}
        before = stage.steps()
        coming, number = begin(
            "/v1/completions", guided("/v1/completions", self.LONG, vllm_xargs=chosen, max_tokens=450)
        )
        wait_until(lambda: stage.steps() > before and stage.running() == 0)
        assert not coming.done()
        stage.service.judge(wire.Refused(id=number, code="grammar_dead_end", message="no"))
        assert error_of(coming.result(30))["code"] == stage.record().error_code == "grammar_dead_end"
