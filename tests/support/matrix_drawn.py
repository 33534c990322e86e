"""What a seed of `make soak-speculation` asks, and one engine that is asked it.

`python -m support.matrix_drawn JOB.json` is a cell's program beside support.matrix_cell: a seed's requests in
one batch, then those that live on among others which are aborted, in steps without room for all drafts.
"""

import multiprocessing
import random
import sys
from pathlib import Path
from typing import Any, Final

import msgspec
from devtools.tinytasks import TASKS, TOPICS, task

from guided_contract.wire import Backend
from guided_engine.processors.choice import ARGUMENT
from support import matrix_drafts, matrix_life
from support.digests import Comparing
from support.fake_service import FakeService
from support.matrix import BACKENDS
from support.matrix_cell import assert_upstream_backend, choose_upstream_backend
from support.matrix_engine import answer, load_all, make_engine, sampling
from support.matrix_process import Job
from support.matrix_requests import LONG, PROCESSED, REASONS, SHARED, Request, processed

REQUESTS = 14
LIVE = 3
FILLING = 5
DOOMED = 5
LATEST_ABORT = 12  # steps
FEW, MANY = 16, 96  # blocks of the cache: with the fewer, requests are preempted
CHUNK = 40  # tokens of a step that reads prompts, where steps lack room
_PENALTIES: list[dict[str, Any]] = [
    {"presence_penalty": 1.5},
    {"frequency_penalty": 1.0, "repetition_penalty": 1.3},
    {"repetition_penalty": 1.2},
]


class Drawn(msgspec.Struct, frozen=True):
    """What one seed asks.

    `processors` has each request's, "" for none; `doomed` are those that are aborted, and the steps that they
    live; `blocks` is the cache's size in blocks of 32 tokens. The last request reaches max_model_len.
    """

    backend: Backend
    requests: list[Request]
    processors: list[str]
    doomed: list[matrix_life.Doomed]
    blocks: int

    @property
    def live(self) -> list[int]:
        """Which requests are asked again, streamed, among those that are aborted: guided ones first."""
        asked = enumerate(zip(self.requests, self.processors, strict=True))
        plain = [at for at, (one, names) in asked if not names and "stop" not in one.params]
        return sorted(plain, key=lambda at: self.requests[at].kind == "none")[:LIVE]


def drawn(seed: int) -> Drawn:
    rng = random.Random(seed)
    backend, blocks = rng.choice(BACKENDS), rng.choice((FEW, MANY))
    story = task("story")
    # Three blocks of a cache that has 15 for all, and before their end a fourth.
    filling = [story.prompt(topic) + SHARED for topic in TOPICS[:FILLING]] if blocks == FEW else []
    sure = [*filling, LONG + SHARED + story.prompt(rng.choice(TOPICS))]
    lasting = [Request(prompt, "none", "", 64, {"ignore_eos": True}) for prompt in sure]
    certain = rng.choice(processed()[:2])  # unguided, as upstream's other backend can have it, too
    requests = [
        *lasting[:-1],
        certain,
        *(_request(rng) for _ in range(REQUESTS - len(sure) - 1)),
        lasting[-1],
    ]
    processors = [
        rng.choice(PROCESSED) if one is certain or (rng.random() < 0.4 and _is_judged(one, backend)) else ""
        for one in requests
    ]
    doomed = [(_request(rng), rng.randrange(LATEST_ABORT)) for _ in range(DOOMED)]
    return Drawn(backend, requests, processors, doomed, blocks)


def _is_judged(one: Request, backend: Backend) -> bool:
    """Return whether support.matrix_processors can judge it with a processor."""
    known = {"ignore_eos", "presence_penalty", "frequency_penalty", "repetition_penalty"}
    return (one.kind == "none" or backend == "xgrammar") and one.params.keys() <= known


def _request(rng: random.Random) -> Request:
    one, topic = rng.choice(TASKS), rng.choice(TOPICS)
    before = rng.choice(["", "", "", REASONS, SHARED, LONG, LONG + SHARED])
    params: dict[str, Any] = rng.choice([{}, {}, *_PENALTIES, {"min_tokens": 9}, {"stop": ["a"]}])
    if one.kind == "none" and rng.random() < 0.5:
        params = params | {"ignore_eos": True}
    return Request(before + one.prompt(topic), one.kind, one.spec, rng.randint(9, 64), params)


# How many steps left drafts out, while it is not negative. Shared with the engine core, which is forked.
_cut: Final = multiprocessing.get_context("fork").Value("i", -1)


def lack_room(seed: int | None) -> None:
    """Have schedulers of engines to come lack room in a step for all drafts, while it is asked for."""
    from vllm.v1.core.sched.scheduler import Scheduler

    original = Scheduler.schedule
    rng = random.Random(seed)

    def schedule(self: Any, *arguments: Any, **options: Any) -> Any:
        wanted = len(self.running) * (1 + self.num_spec_tokens)
        if _cut.value < 0 or not wanted:
            return original(self, *arguments, **options)
        reads = self.waiting or any(one.num_computed_tokens < one.num_prompt_tokens for one in self.running)
        room = self.max_num_scheduled_tokens
        self.max_num_scheduled_tokens = less = CHUNK if reads else rng.randrange(1, wanted)
        scheduled = original(self, *arguments, **options)
        self.max_num_scheduled_tokens = room
        _cut.value += not reads and scheduled.total_num_scheduled_tokens == less
        return scheduled

    Scheduler.schedule = schedule


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
    lack_room(job.drawn)
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
    _cut.value = 0
    streamed, again = matrix_life.aborts(llm, live, chosen.doomed, tickets)
    return {
        "answers": list(map(answer, found)),
        "drafts": matrix_drafts.counted(llm, found),
        "live": streamed,
        "again": again,
        "cut": _cut.value,
    }


if __name__ == "__main__":
    main(Path(sys.argv[1]))
