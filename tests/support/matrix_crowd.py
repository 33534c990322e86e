"""Draft tokens that stop while a batch is large, as disableAbove has it, in one engine of the matrix.

Only for the requests that are asked here, so that others have the same drafts whatever is beside them.
"""

import multiprocessing
from collections.abc import Mapping
from typing import Any, Final

from guided_contract import wire
from support import matrix_life, matrix_passes
from support.matrix_requests import Answer, Request

CROWD: Final = 13  # sequences
TOKENS: Final = 5
ALONE: Final = 4  # steps before it comes
# Shared with the engine core, which is forked.
_follows = multiprocessing.get_context("fork").Value("b", False)


def prepare() -> None:
    """Have schedulers of engines to come follow the batch while something is asked here."""
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


def crowded(
    llm: Any, live: list[Request], tickets: Mapping[str, wire.Ticket]
) -> tuple[list[Answer], list[list[dict[str, Any]]]]:
    """Return what requests gave that others crowded in upon for a while, and each rank's proposals."""
    engine = llm.llm_engine
    llm.collective_rpc(matrix_passes.watch)
    _follows.value = True
    for index, request in enumerate(live):
        matrix_life.add(engine, f"first-{index}", request, tickets)
    answers: dict[str, Answer] = {}
    step = 0
    while engine.has_unfinished_requests():
        if step == ALONE:
            for index in range(CROWD - len(live)):
                matrix_life.add(engine, f"crowd-{index}", Request("Go on\n", "none", "", TOKENS), tickets)
        matrix_life.take(engine, answers)
        step += 1
    _follows.value = False
    made = llm.collective_rpc(matrix_passes.proposals)
    return [answers[f"first-{index}"] for index in range(len(live))], made
