"""A whole pod with two ranks: every HTTP route times every kind of constraint, by its name too; a trace."""

import os
import re
import secrets
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from support import openai, routes
from support.pod import Pod, gone
from support.routes import CONSTRAINTS, ROUTES

pytestmark = [pytest.mark.engine, pytest.mark.timeout(1200)]

LONG_TOKENS = 400
# Route, constraint and whether the answer is streamed.
Case = tuple[str, str, bool]
CASES: list[Case] = [
    (name, constraint, stream)
    for name, route in ROUTES.items()
    for stream in (False, True)
    for constraint in CONSTRAINTS
    if constraint in route.kinds and (route.pieces or not stream)
]


@pytest.fixture(scope="module")
def responses(pod: Pod) -> Iterator[dict[Case, Future[httpx.Response]]]:
    """Every case's answer; all are asked at once, so that they share batches."""
    routes.tokenizer()  # imported once, not by every thread

    def ask(case: Case) -> httpx.Response:
        route, constraint, stream = case
        return ROUTES[route].ask(pod.url, CONSTRAINTS[constraint], stream=stream)

    with ThreadPoolExecutor(16) as pool:
        yield {case: pool.submit(ask, case) for case in CASES}


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
    pages = (pod.url, f"http://127.0.0.1:{pod.ports.sidecar}")
    lines = [line for url in pages for line in httpx.get(f"{url}/metrics").text.splitlines()]
    names = ("vllm:num_requests_running{", "vllm:num_requests_waiting{", "guidedmodel_grammar_leases ")
    found = [float(line.rpartition(" ")[2]) for line in lines if line.startswith(names)]
    assert len(found) == len(names)
    return sum(found) - 1  # the named grammar's


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]}-{case[1]}{'-streamed' * case[2]}")
def test_answers_meet_their_constraint(responses: dict[Case, Future[httpx.Response]], case: Case) -> None:
    route, constraint, _ = case
    answers = ROUTES[route].answers(responses[case].result())
    assert len(answers) == (2 if route == "batch chat" else 1)
    for answer in answers:
        CONSTRAINTS[constraint].check(answer)


@pytest.mark.parametrize("route", ROUTES)
def test_every_route_serves_a_grammar_by_its_name(pod: Pod, route: str) -> None:
    """And says which there are, to who asks for another."""
    asked = CONSTRAINTS["json"]
    for answer in ROUTES[route].answers(ROUTES[route].ask_by_name(pod.url, "card", asked)):
        asked.check(answer)
    unknown = ROUTES[route].ask_by_name(pod.url, "cart", asked)
    assert openai.error_code(unknown) == (400, "grammar_unknown")
    assert unknown.json()["error"]["message"] == "this model has no grammar 'cart'; its grammars: card"


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
