"""One engine that chooses its number of draft tokens, `python -m support.load_cell JOB.json`: numTokens Auto.

As a pod has it, but for the clock: what a step takes is played, so that what is chosen follows from what is
accepted alone. Writes to the job's `answer` file what was generated, proposed and told.
"""

import contextlib
import itertools
import socket
import sys
import threading
from collections import deque
from pathlib import Path
from typing import Any, Final

import msgspec

from guided_contract import records
from guided_contract.wire import Ticket
from support import matrix_drafts, matrix_life
from support.fake_service import FakeService
from support.matrix_engine import load_all, make_engine
from support.matrix_process import Job
from support.matrix_requests import Answer, Request, corpus

SEQUENCES: Final = 6  # that are there from the first to the last step
TOKENS: Final = 150  # of each
GUIDED: Final = 8  # of the corpus, which come amid those, one every so many steps
EVERY: Final = 4
STEP_S: Final = 0.2  # of a step without drafts, played; each draft token of a sequence adds a tenth
DRAFT: Final = 0.1


def steady() -> list[Request]:
    """Return the unguided requests that go on to the end."""
    prompts = ("Go on\n", "a b a b a b\n", "Say anything you like\n", "One\n", "river stone\n", "Tell\n")
    return [Request(prompt, "none", "", TOKENS, {"ignore_eos": True}) for prompt in prompts[:SEQUENCES]]


def guided() -> list[Request]:
    """Return the guided requests that come amid them."""
    return [request for request in corpus() if request.kind != "none"][:GUIDED]


def main(path: Path) -> None:
    job = msgspec.json.decode(path.read_bytes(), type=Job)
    if job.pod is None:
        answers: dict[str, Any] = {"steady": served(make_engine(job), [], {})[0]}
    else:
        play()
        with (
            FakeService(job.pod.service_socket) as service,
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sidecar,
        ):
            answers = chosen(job, service, sidecar)
    Path(job.answer).write_bytes(msgspec.json.encode(answers))


def play() -> None:
    """Have engine cores to come, which are forked, take a played clock's time."""
    from guided_engine.compat import core_drafts

    class Played(core_drafts.DraftsByLoad):
        def __init__(self, scheduler: Any, engine: int, send: Any) -> None:
            self.now_s = 0.0
            super().__init__(scheduler, engine, send, lambda: self.now_s)

        def start(self) -> None:
            super().start()
            measured = self._scheduler.update_from_output

            def update_from_output(scheduled: Any, sampled: Any) -> Any:
                drafts = max(map(len, scheduled.scheduled_spec_decode_tokens.values()), default=0)
                if scheduled.total_num_scheduled_tokens:
                    self.now_s += STEP_S * (1 + DRAFT * drafts)
                return measured(scheduled, sampled)

            self._scheduler.update_from_output = update_from_output

    core_drafts.DraftsByLoad = Played  # type: ignore[misc]


def chosen(job: Job, service: FakeService, sidecar: socket.socket) -> dict[str, Any]:
    """Return what an engine generated, the number of draft tokens of each step, and the records it sent."""
    assert job.pod is not None
    sidecar.bind(str(job.pod.telemetry_socket))
    found: list[records.DraftTokens] = []
    threading.Thread(target=_listen, args=(sidecar, found), daemon=True).start()
    llm = make_engine(job)
    engine = llm.llm_engine.vllm_config
    llm.collective_rpc(matrix_drafts.watch)
    tickets = load_all(job, service, "xgrammar", guided())
    answers = served(llm, guided(), tickets)
    return {
        "facts": {
            "async": engine.scheduler_config.async_scheduling,
            "runner": "V2" if engine.use_v2_model_runner else "V1",
        },
        "steady": answers[0],
        "guided": answers[1],
        "draft tokens": matrix_drafts.numbers(llm),
        "told": found,
    }


def _listen(sidecar: socket.socket, found: list[records.DraftTokens]) -> None:
    with contextlib.suppress(OSError):  # it is closed at the end
        while True:
            record = records.decode(sidecar.recv(1 << 16))
            if isinstance(record, records.DraftTokens):
                found.append(record)


def served(llm: Any, others: list[Request], tickets: dict[str, Ticket]) -> tuple[list[Answer], list[Answer]]:
    """Return what the steady requests gave, and what others gave that came one after the other."""
    engine = llm.llm_engine
    for index, request in enumerate(steady()):
        matrix_life.add(engine, f"steady-{index}", request, tickets)
    answers: dict[str, Answer] = {}
    to_come = deque(enumerate(others))
    for step in itertools.count():
        # The engine's process goes on by itself: the steady ones may be done before all others have come.
        if to_come and (step % EVERY == 0 or not engine.has_unfinished_requests()):
            index, request = to_come.popleft()
            matrix_life.add(engine, f"other-{index}", request, tickets)
        if not engine.has_unfinished_requests():
            break
        matrix_life.take(engine, answers)
    return (
        [answers[f"steady-{index}"] for index in range(SEQUENCES)],
        [answers[f"other-{index}"] for index in range(len(others))],
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
