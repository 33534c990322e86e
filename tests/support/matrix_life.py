"""Lives of requests in one engine of the matrix: aborted in every state; crowded out of their drafts."""

import multiprocessing
from collections import deque
from collections.abc import Mapping
from typing import Any, Final

from guided_contract import wire
from support.matrix_engine import sampling
from support.matrix_requests import LONG, Answer, Request

CROWD: Final = 13  # sequences
TOKENS: Final = 5
ALONE: Final = 4  # steps before it comes
# Shared with the engine core, which is forked.
_follows = multiprocessing.get_context("fork").Value("b", False)
# A request to abort, and the number of steps that it lives.
Doomed = tuple[Request, int]


def aborts(
    llm: Any, live: list[Request], tickets: Mapping[str, wire.Ticket]
) -> tuple[list[Answer], list[Answer]]:
    """Return what `live` gave, streamed, and what each of them gave again under the name of an aborted one.

    All are added at once, more than there is room for; a name is used again right after its abort.
    """
    engine, doomed = llm.llm_engine, doom(live)
    for index, request in enumerate(live):
        add(engine, f"live-{index}", request, tickets)
    for index, (request, _) in enumerate(doomed):
        add(engine, f"doomed-{index}", request, tickets)
    answers: dict[str, Answer] = {}
    step = 0
    while step == 0 or engine.has_unfinished_requests():
        for index, (_, steps) in enumerate(doomed):
            if steps == step:
                engine.abort_request([f"doomed-{index}"])
                answers.pop(f"doomed-{index}", None)
                add(engine, f"doomed-{index}", live[index % len(live)], tickets)
        take(engine, answers)
        step += 1
    return (
        [answers[f"live-{index}"] for index in range(len(live))],
        [answers[f"doomed-{index}"] for index in range(len(doomed))],
    )


def take(engine: Any, answers: dict[str, Answer]) -> None:
    """Run a step, and add what it gave."""
    for output in engine.step():
        one = output.outputs[0]
        tokens = answers.get(output.request_id, ([], None, None))[0] + list(one.token_ids)
        answers[output.request_id] = (tokens, one.finish_reason, one.stop_reason)


def add(engine: Any, name: str, request: Request, tickets: Mapping[str, wire.Ticket]) -> None:
    from vllm.sampling_params import RequestOutputKind

    params = sampling(request, tickets.get(request.key))
    params.output_kind = RequestOutputKind.DELTA
    engine.add_request(name, request.prompt, params)


def doom(live: list[Request]) -> list[Doomed]:
    """Return requests to abort: before a step, in a prompt's chunks, waiting for room, generating."""
    long = Request(LONG + live[0].prompt, live[0].kind, live[0].spec, 40)
    return [(live[0], 0), (long, 0), (long, 1), (long, 2), *((live[i % len(live)], i) for i in (1, 3, 4, 9))]


def sequences(worker: Any) -> int:
    """Return how many sequences a rank still knows; run in it. An early stage has none."""
    return 0 if worker.guided is None else len(worker.guided._guide._ours)


def shares_a_process(worker: Any) -> bool:
    """Return whether a rank knows the steps that the engine core has not read; run in it."""
    return worker.guided is not None and isinstance(worker.guided.unread, deque)


def prepare() -> None:
    """Have schedulers of engines to come follow the batch, as disableAbove has it, while `crowded` asks."""
    from vllm.v1.core.sched.scheduler import Scheduler
    from vllm.v1.spec_decode.dynamic.utils import build_dynamic_sd_schedule_lookup

    original = Scheduler.schedule

    def schedule(self: Any, *arguments: Any, **options: Any) -> Any:
        most, drafts = self.max_num_running_reqs, self.num_spec_tokens
        configured = [[1, CROWD - 1, drafts], [CROWD, CROWD, 0]]
        lookup = build_dynamic_sd_schedule_lookup(configured, most, drafts)
        self.dynamic_sd_lookup = lookup if _follows.value else None
        return original(self, *arguments, **options)

    Scheduler.schedule = schedule


def crowded(llm: Any, live: list[Request], tickets: Mapping[str, wire.Ticket]) -> list[Answer]:
    """Return what requests gave that others crowded in upon for a while."""
    engine = llm.llm_engine
    _follows.value = True
    for index, request in enumerate(live):
        add(engine, f"first-{index}", request, tickets)
    answers: dict[str, Answer] = {}
    step = 0
    while engine.has_unfinished_requests():
        if step == ALONE:
            for index in range(CROWD - len(live)):
                add(engine, f"crowd-{index}", Request("Go on\n", "none", "", TOKENS), tickets)
        take(engine, answers)
        step += 1
    _follows.value = False
    return [answers[f"first-{index}"] for index in range(len(live))]
