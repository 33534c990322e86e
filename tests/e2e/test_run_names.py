"""Named grammars on a whole pod: every route serves them, and tells which there are."""

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


@pytest.mark.parametrize("route", ROUTES)
def test_every_route_serves_a_grammar_by_its_name(pod: Pod, route: str) -> None:
    for name in NAMED if route == "completions" else ("card",):
        for answer in ROUTES[route].answers(ask(pod, route, name, NAMED[name])):
            CONSTRAINTS[NAMED[name]].check(answer)


@pytest.mark.parametrize("route", ROUTES)
def test_an_unknown_name_is_a_400_with_those_that_there_are(pod: Pod, route: str) -> None:
    response = ask(pod, route, "cart")
    assert openai.error_code(response) == (400, "grammar_unknown")
    error = response.json()["error"]
    assert error["param"] == "vllm_xargs.guided_grammar"
    assert error["message"] == f"this model has no grammar 'cart'; its grammars: {', '.join(sorted(NAMED))}"
