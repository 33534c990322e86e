"""Requests that are aborted in every state among others that live on, in one engine of the matrix."""

from collections.abc import Mapping
from typing import Any

from guided_contract import wire
from support.matrix_engine import sampling
from support.matrix_requests import LONG, Answer, Request

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
    return 0 if worker._guided is None else len(worker._guided._guide._sequences)
