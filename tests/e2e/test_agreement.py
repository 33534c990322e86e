"""A whole pod on two ranks, one of which goes wrong: that request ends with its code, and nothing else."""

import json
import re
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from guided_contract import status
from guided_contract.status import PodStatus
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
EVERYWHERE = "-everywhere"
DESYNC = (503, "ranks_desynchronized")
FAILING = {kind: (422, code) for kind, code in planted.CODES.items()}
# What each planted fault ends its request with, by the processor's name: on rank 1 alone, or on both.
FAULTS = {
    **dict.fromkeys(planted.DIFFERING, DESYNC),
    **FAILING,
    **{kind + EVERYWHERE: ended for kind, ended in FAILING.items()},
}


@pytest.fixture(scope="module")
def hurry(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file that ends the lingering."""
    return tmp_path_factory.mktemp("hurry") / "up"


@pytest.fixture(scope="module")
def pod(hurry: Path) -> Iterator[Pod]:
    lingers = {
        "name": LINGERS,
        "factory": "support.failing:Lingers",
        "params": {"step_s": STEP_S, "until": str(hurry)},
        "applyByDefault": False,
    }
    planted_ones = [
        {
            "name": name,
            "factory": "support.planted:Planted",
            "params": {
                "kind": name.removesuffix(EVERYWHERE),
                "after": AFTER,
                "rank": None if name.endswith(EVERYWHERE) else 1,
            },
            "applyByDefault": False,
        }
        for name in FAULTS
    ]
    manifest = sample(
        guidedDecoding={"backend": "XGrammar"},
        logitsProcessors=[lingers, *planted_ones],
    )
    sampled = {"guidedDecoding": {"compareEvery": EVERY}}
    pod = start_pod(manifest, env={"PYTHONPATH": str(ROOT / "tests")}, configured=sampled)
    yield pod
    pod.stop()


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(16) as pool:
        yield pool


def faulty(pod: Pod, fault: str, **fields: Any) -> httpx.Response:
    return openai.completion(pod.url, "x", **{**goes_on(fault), **fields})


def goes_on(*processors: str) -> dict[str, Any]:
    """Return the fields of a request that no machine has finished before word of a fault comes."""
    length = {"min_tokens": LONG, "max_tokens": LONG}
    return {**LETTERS, **length, "vllm_xargs": {"logits_processors": [LINGERS, *processors]}}


def page(pod: Pod) -> PodStatus:
    url = f"http://127.0.0.1:{pod.config.ports.sidecar}/status"
    return status.decode(httpx.get(url, timeout=10).content)


def metric(pod: Pod, name: str, url: str = "") -> float:
    url = url or f"http://127.0.0.1:{pod.config.ports.sidecar}"
    lines = httpx.get(f"{url}/metrics", timeout=10).text.splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name))


def seen_at(pod: Pod, request_id: str) -> list[int]:
    """Return after how many tokens of a request the sidecar saw its ranks differ, by its log."""
    log = (pod.config_path.parent / "sidecar.log").read_text()
    return [int(at) for at in re.findall(rf"disagree about request {request_id}\S*: .* at token (\d+)", log)]


def test_ranks_that_agree_are_compared(pod: Pod) -> None:
    answer = openai.completion(pod.url, "x", **LETTERS, temperature=1)
    assert openai.text(answer)
    pod.wait(lambda: metric(pod, "guidedmodel_digests_compared_total") > TOKENS // EVERY)
    assert page(pod).desync == ""


@pytest.mark.parametrize("fault", planted.DIFFERING)
def test_a_request_on_which_ranks_differ_ends(pod: Pod, fault: str) -> None:
    before = [rank.desyncs for rank in page(pod).ranks]
    response = faulty(pod, fault)
    assert openai.error_code(response) == DESYNC
    assert response.headers["retry-after"] == "1"
    pod.wait(lambda: [rank.desyncs for rank in page(pod).ranks] == [count + 1 for count in before])
    assert page(pod).desync
    assert page(pod).ready


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


@pytest.mark.parametrize("fault", FAILING)
def test_a_failure_on_any_rank_ends_the_request_and_its_siblings(pod: Pod, fault: str) -> None:
    """Also one on a rank whose output nobody reads."""
    before = [rank.desyncs for rank in page(pod).ranks]
    response = faulty(pod, fault, n=3, temperature=1)
    assert openai.error_code(response) == FAULTS[fault]
    assert [rank.desyncs for rank in page(pod).ranks] == before
    pod.wait(lambda: metric(pod, "vllm:num_requests_running", pod.url) == 0)


@pytest.mark.parametrize(
    "sampling", [{"temperature": 0}, {"temperature": 1, "seed": 7}], ids=["greedy", "seeded"]
)
def test_neighbours_of_a_failing_request_generate_what_they_do_without_it(
    pod: Pod, pool: ThreadPoolExecutor, sampling: Mapping[str, Any]
) -> None:
    def neighbours() -> list[Future[httpx.Response]]:
        return [
            pool.submit(openai.completion, pod.url, prompt, **{**LETTERS, **constraint, **sampling})
            for prompt in ("one", "another")
            for constraint in ({}, {"structured_outputs": None})
        ]

    alone = [openai.text(one.result()) for one in neighbours()]
    beside = neighbours()
    failed = {fault: pool.submit(faulty, pod, fault, **sampling) for fault in FAULTS}
    assert {fault: openai.error_code(one.result()) for fault, one in failed.items()} == FAULTS
    assert [openai.text(one.result()) for one in beside] == alone
