"""Named grammars on a whole pod: every route by name, a change without a restart, and what is refused."""

import re
from pathlib import Path
from typing import Any

import httpx
import pytest

from support import openai
from support.pod import Pod
from support.routes import CONSTRAINTS, ROUTES, TIMEOUT_S

pytestmark = [pytest.mark.engine, pytest.mark.timeout(1200)]

# Which of the pod's grammars is which constraint.
NAMED = {"card": "json", "code": "regex", "query": "EBNF", "tag": "structural tag"}


def ask(pod: Pod, route: str, name: str, constraint: str = "json", **fields: Any) -> httpx.Response:
    """Ask for a grammar by its name, with a constraint's prompt and without a constraint."""
    by_name = {"guided_grammar": name}
    body = {"model": "tiny", **ROUTES[route].body(CONSTRAINTS[constraint]), **fields}
    for sampling in (body, body.get("sampling_params", {})):
        sampling.pop("structured_outputs", None)
    body.pop("output_config", None)
    if "sampling_params" in body:
        body["sampling_params"]["extra_args"] = by_name
    else:
        body["vllm_xargs"] = by_name
    return httpx.post(f"{pod.url}{ROUTES[route].path}", json=body, timeout=TIMEOUT_S)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("route", ROUTES)
def test_every_route_serves_a_grammar_by_its_name(pod: Pod, route: str, stream: bool) -> None:  # noqa: FBT001 - a case
    if stream and ROUTES[route].pieces is None:
        return
    for name in NAMED if route == "completions" else ("card",):
        response = ask(pod, route, name, NAMED[name], stream=stream)
        for answer in ROUTES[route].answers(response):
            CONSTRAINTS[NAMED[name]].check(answer)


@pytest.mark.parametrize("route", ROUTES)
def test_an_unknown_name_is_a_400_with_those_that_there_are(pod: Pod, route: str) -> None:
    response = ask(pod, route, "cart")
    assert openai.error_code(response) == (400, "grammar_unknown")
    error = response.json()["error"]
    assert error["param"] == "vllm_xargs.guided_grammar"
    assert error["message"] == f"this model has no grammar 'cart'; its grammars: {', '.join(sorted(NAMED))}"


STRICT = {
    "type": "function",
    "function": {"name": "f", "strict": True, "parameters": {"type": "object", "properties": {}}},
}


@pytest.mark.parametrize(
    "fields",
    [{"response_format": {"type": "json_object"}}, {"tools": [STRICT], "tool_choice": "required"}],
    ids=["response_format", "tools"],
)
def test_a_name_beside_a_constraint_of_its_own_is_a_400(pod: Pod, fields: dict[str, Any]) -> None:
    response = ask(pod, "chat", "card", **fields)
    assert openai.error_code(response) == (400, "grammar_invalid")
    assert "guided_grammar cannot be combined with a schema" in response.json()["error"]["message"]


def test_beam_search_by_name_is_a_400(pod: Pod) -> None:
    response = ask(pod, "completions", "card", use_beam_search=True, n=2)
    assert openai.error_code(response) == (400, "request_not_admitted")


def test_a_change_is_served_without_a_restart_and_a_broken_one_is_not(pod: Pod, texts: Path) -> None:
    """The engine never hears of it: the same processes answer by the new text."""
    workers = pod.sidecar.workers()
    before = pod.processes() - workers
    text = (texts / "code").read_text()

    def write(changed: str) -> None:
        (texts / "unfinished").write_text(changed)
        (texts / "unfinished").replace(texts / "code")

    def answer() -> str:
        return openai.text(ask(pod, "completions", "code", "regex"))

    def page() -> dict[str, Any]:
        return dict(httpx.get(f"http://127.0.0.1:{pod.ports.sidecar}/status").json())

    def states() -> dict[str, str]:
        return {one["name"]: one["state"] for one in page()["grammars"]}

    assert re.fullmatch(text, answer())
    assert states() == dict.fromkeys(NAMED, "Ready")
    try:
        write("new-[0-9]{4}")
        pod.wait(lambda: re.fullmatch("new-[0-9]{4}", answer()))
        write("(broken")
        pod.wait(lambda: states()["code"] == "Stale")
        assert re.fullmatch("new-[0-9]{4}", answer())
        assert page()["ready"]
    finally:
        write(text)
    pod.wait(lambda: re.fullmatch(text, answer()) and states()["code"] == "Ready")
    assert before <= pod.processes(), "nothing was restarted but, perhaps, grammar workers"
