"""A whole pod on two ranks, one of which goes wrong: that request ends with its code, and nothing else."""

import json
import os
import re
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from support import openai, planted
from support.pod import ROOT, Pod, sample, start_pod

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]

EVERY = 8
AFTER = 5
TOKENS = 60
LETTERS = {"structured_outputs": {"regex": "[a-z ]+"}, "min_tokens": TOKENS, "max_tokens": TOKENS}
LINGERS = "lingers"  # the processor that makes each step take so much longer
STEP_S = 0.1
LONG = 400  # tokens: with that, no busy machine is through with them before word of a fault comes
DESYNC = (503, "ranks_desynchronized")
# What each fault, planted on rank 1 alone, ends its request with, by the processor's name.
FAULTS = {
    **dict.fromkeys(planted.DIFFERING, DESYNC),
    **{kind: (422, code) for kind, code in planted.CODES.items()},
}


@pytest.fixture(scope="module")
def pod(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pod]:
    lingers = {
        "name": LINGERS,
        "factory": "support.failing:Lingers",
        "params": {"step_s": STEP_S},
        "applyByDefault": False,
    }
    planted_ones = [
        {
            "name": name,
            "factory": "support.planted:Planted",
            "params": {"kind": name, "after": AFTER, "rank": 1},
            "applyByDefault": False,
        }
        for name in FAULTS
    ]
    manifest = sample(
        guidedDecoding={"backend": "XGrammar"},
        logitsProcessors=[lingers, *planted_ones],
    )
    sampled = {"guidedDecoding": {"compareEvery": EVERY}}
    plugin = tmp_path_factory.mktemp("plugin")
    planted.entry_point(plugin)
    path = os.pathsep.join([str(ROOT / "tests"), str(plugin)])
    pod = start_pod(manifest, env={"PYTHONPATH": path}, configured=sampled)
    yield pod
    pod.stop()


def goes_on(*processors: str) -> dict[str, Any]:
    """Return the fields of a request that no machine has finished before word of a fault comes."""
    length = {"min_tokens": LONG, "max_tokens": LONG}
    return {**LETTERS, **length, "vllm_xargs": {"logits_processors": [LINGERS, *processors]}}


def seen_at(pod: Pod, request_id: str) -> list[int]:
    """Return after how many tokens of a request the sidecar saw its ranks differ, by its log."""
    log = (pod.config_path.parent / "sidecar.log").read_text()
    return [int(at) for at in re.findall(rf"disagree about request {request_id}\S*: .* at token (\d+)", log)]


def test_ranks_that_agree_are_compared(pod: Pod) -> None:
    def told(what: str) -> float:
        lines = httpx.get(f"http://127.0.0.1:{pod.ports.sidecar}/metrics", timeout=10).text.splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(f"guidedmodel_{what}"))

    assert openai.text(openai.completion(pod.url, "x", **LETTERS, temperature=1))
    pod.wait(lambda: told("digests_compared_total") > TOKENS // EVERY)
    assert told("rank_desyncs_total") == 0


@pytest.mark.parametrize("fault", [*planted.DIFFERING, planted.RAISES])
def test_a_stream_ends_with_the_error_within_the_interval(pod: Pod, fault: str) -> None:
    body = {"model": "tiny", "prompt": "x", "temperature": 0, "stream": True, **goes_on(fault)}
    with httpx.stream("POST", f"{pod.url}/v1/completions", json=body, timeout=openai.TIMEOUT_S) as response:
        assert response.status_code == 200
        events = [line.removeprefix("data: ") for line in response.iter_lines() if line]
    assert events[-1] == "[DONE]"
    assert json.loads(events[-2])["error"]["code"] == FAULTS[fault][1]
    # The word goes through two processes, while the engine runs on.
    assert len(events) - 2 < LONG
    if fault in planted.DIFFERING:
        [position] = seen_at(pod, json.loads(events[0])["id"])
        # A digest is of the tokens so far and of the mask after them; the request's id says where it is due.
        first = AFTER if fault == planted.MASK_DIFFERS else AFTER + 1
        assert first <= position <= AFTER + EVERY


@pytest.mark.parametrize(
    "sampling", [{"temperature": 0}, {"temperature": 1, "seed": 7}], ids=["greedy", "seeded"]
)
def test_a_fault_ends_its_request_and_neighbours_generate_what_they_do_without_it(
    pod: Pod, sampling: Mapping[str, Any]
) -> None:
    def ask(prompt: str, fields: Mapping[str, Any]) -> Future[httpx.Response]:
        return pool.submit(openai.completion, pod.url, prompt, **{**fields, **sampling})

    def neighbours() -> list[Future[httpx.Response]]:
        return [
            ask(prompt, {**LETTERS, **constraint})
            for prompt in ("one", "another")
            for constraint in ({}, {"structured_outputs": None})
        ]

    with ThreadPoolExecutor(16) as pool:
        alone = [openai.text(one.result()) for one in neighbours()]
        beside = neighbours()
        failed = {fault: ask("x", goes_on(fault)) for fault in FAULTS}
        assert {fault: openai.error_code(one.result()) for fault, one in failed.items()} == FAULTS
        assert [openai.text(one.result()) for one in beside] == alone
