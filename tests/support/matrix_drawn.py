"""What a seed of `make soak-speculation` asks, and one engine that is asked it.

`python -m support.matrix_drawn JOB.json` is a cell's program beside support.matrix_cell: a seed's requests in
one batch, then those that live on among others which are aborted.
"""

import random
import sys
from pathlib import Path
from typing import Any

import msgspec
from devtools.tinytasks import TASKS, TOPICS

from guided_contract.wire import Backend
from guided_engine.processors.choice import ARGUMENT
from support import matrix_drafts, matrix_life
from support.digests import Comparing
from support.fake_service import FakeService
from support.matrix import BACKENDS
from support.matrix_cell import assert_upstream_backend, choose_upstream_backend
from support.matrix_engine import answer, load_all, make_engine, sampling
from support.matrix_process import Job
from support.matrix_requests import LONG, PROCESSED, REASONS, SHARED, Request

REQUESTS = 14
LIVE = 3
DOOMED = 5
LATEST_ABORT = 12  # steps
BLOCKS = (16, 96)  # with the fewer, requests are preempted
ROOMY, CUTTING = 4096, 40  # tokens of a step: for all prompts and drafts at once, and not
_PENALTIES: list[dict[str, Any]] = [
    {"presence_penalty": 1.5},
    {"frequency_penalty": 1.0, "repetition_penalty": 1.3},
    {"repetition_penalty": 1.2},
]


class Drawn(msgspec.Struct, frozen=True):
    """What one seed asks.

    `processors` has each request's, "" for none; `doomed` are those that are aborted, and the steps that they
    live; `blocks` and `step_tokens` the cache's size in blocks of 32 tokens, and the most tokens of a step.
    """

    backend: Backend
    requests: list[Request]
    processors: list[str]
    doomed: list[matrix_life.Doomed]
    blocks: int
    step_tokens: int

    @property
    def live(self) -> list[int]:
        """Which requests are asked again, streamed, among those that are aborted."""
        plain = zip(self.requests, self.processors, strict=True)
        return [at for at, (one, names) in enumerate(plain) if not names and "stop" not in one.params][:LIVE]

    @property
    def is_cut_by_step(self) -> bool:
        """Whether steps lack room for all drafts, which then depend on who else is in the batch."""
        return self.step_tokens == CUTTING


def drawn(seed: int) -> Drawn:
    rng = random.Random(seed)
    backend = rng.choice(BACKENDS)
    requests = [_request(rng) for _ in range(REQUESTS)]
    processors = [
        # By what support.matrix_processors can judge.
        rng.choice(PROCESSED)
        if rng.random() < 0.4
        and (one.kind == "none" or backend == "xgrammar")
        and one.params.keys() <= {"ignore_eos", "presence_penalty", "frequency_penalty", "repetition_penalty"}
        else ""
        for one in requests
    ]
    doomed = [(_request(rng), rng.randrange(LATEST_ABORT)) for _ in range(DOOMED)]
    return Drawn(
        backend, requests, processors, doomed, rng.choice(BLOCKS), rng.choice((ROOMY, ROOMY, CUTTING))
    )


def _request(rng: random.Random) -> Request:
    task, topic = rng.choice(TASKS), rng.choice(TOPICS)
    # The longest leave a few tokens to max_model_len, which cuts drafts as it ends the request.
    before = rng.choice(["", "", "", REASONS, SHARED, LONG, LONG + SHARED])
    params: dict[str, Any] = rng.choice([{}, {}, *_PENALTIES, {"min_tokens": 9}, {"stop": ["a"]}])
    if task.kind == "none" and rng.random() < 0.5:
        params = params | {"ignore_eos": True}
    return Request(before + task.prompt(topic), task.kind, task.spec, rng.randint(6, 64), params)


def main(path: Path) -> None:
    job = msgspec.json.decode(path.read_bytes(), type=Job)
    assert job.drawn is not None
    chosen = drawn(job.drawn)
    if job.pod is None:
        answers = upstream(job, chosen)
    else:
        with FakeService(job.pod.service_socket) as service, Comparing(job.pod):
            answers = ours(job, chosen, service)
    Path(job.answer).write_bytes(msgspec.json.encode(answers))


def upstream(job: Job, chosen: Drawn) -> dict[str, Any]:
    """Return upstream's answer to each request, as if it had no processors: it has none of ours."""
    llm = make_engine(job)
    choose_upstream_backend(llm, chosen.backend)
    found = llm.generate(
        [one.prompt for one in chosen.requests],
        [sampling(one, None) for one in chosen.requests],
        use_tqdm=False,
    )
    assert_upstream_backend(llm, chosen.backend)
    return {"answers": list(map(answer, found))}


def ours(job: Job, chosen: Drawn, service: FakeService) -> dict[str, Any]:
    """Return the answer to each request and its drafts, and the answers among those that were aborted."""
    llm = make_engine(job)
    assert llm.llm_engine.vllm_config.scheduler_config.async_scheduling == job.arguments["async_scheduling"]
    llm.collective_rpc(matrix_drafts.watch)
    asked = [*chosen.requests, *(one for one, _ in chosen.doomed)]
    tickets = load_all(job, service, chosen.backend, asked)
    settings = [
        sampling(one, tickets.get(one.key), {ARGUMENT: names} if names else None)
        for one, names in zip(chosen.requests, chosen.processors, strict=True)
    ]
    found = llm.generate([one.prompt for one in chosen.requests], settings, use_tqdm=False)
    live = [chosen.requests[at] for at in chosen.live]
    streamed, again = matrix_life.aborts(llm, live, chosen.doomed, tickets)
    return {
        "answers": list(map(answer, found)),
        "drafts": matrix_drafts.counted(llm, found),
        "live": streamed,
        "again": again,
    }


if __name__ == "__main__":
    main(Path(sys.argv[1]))
