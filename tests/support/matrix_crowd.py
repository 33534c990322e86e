"""Draft tokens that stop while a batch is large, and numbers of them by load, in one engine of the matrix.

Only for the requests that are asked here, so that others have the same drafts whatever is beside them.
"""

import multiprocessing
from collections.abc import Mapping
from typing import Any, Final

from guided_contract import wire
from guided_operator.builders.arguments import schedule_by_load
from support import matrix_life
from support.matrix_requests import Answer, Request

CROWD: Final = 13  # sequences
TOKENS: Final = 5
MANY: Final = 24  # tokens of a crowd that stays until numbers have been tried
ALONE: Final = 4  # steps before it comes
# Shared with the engine core, which is forked.
_follows = multiprocessing.get_context("fork").Value("b", 0)
_NOTHING, _BATCH, _LOAD = range(3)  # what the number of draft tokens follows


def prepare() -> None:
    """Have schedulers of engines to come follow the batch while something is asked here."""
    from vllm.v1.core.sched.scheduler import Scheduler
    from vllm.v1.spec_decode.dynamic.utils import build_dynamic_sd_schedule_lookup

    original = Scheduler.schedule

    def schedule(self: Any, *arguments: Any, **options: Any) -> Any:
        follows, drafts = _follows.value, self.num_spec_tokens
        if follows != self.__dict__.get("follows", _NOTHING):
            self.follows = follows
            configured = {
                _NOTHING: None,
                _BATCH: [[1, CROWD - 1, drafts], [CROWD, CROWD, 0]],
                _LOAD: schedule_by_load(drafts, self.max_num_running_reqs),
            }[follows]
            self.dynamic_sd_lookup = configured and build_dynamic_sd_schedule_lookup(
                configured, self.max_num_running_reqs, drafts
            )
            if follows == _LOAD:
                _choose(self)
        return original(self, *arguments, **options)

    Scheduler.schedule = schedule


def _choose(scheduler: Any) -> None:
    """Choose by what this device would take: a step with drafts four times one without, but for few rows."""
    from guided_engine.compat.core_drafts import DraftsByLoad

    now_s = 0.0
    DraftsByLoad(scheduler, 0, lambda _record: None, lambda: now_s).start()
    update = scheduler.update_from_output

    def update_from_output(scheduled: Any, output: Any) -> Any:
        nonlocal now_s
        drafts, batch = len(scheduled.scheduled_spec_decode_tokens), len(scheduled.num_scheduled_tokens)
        now_s += 0.02 if batch < CROWD // 2 or not drafts else 0.08
        return update(scheduled, output)

    scheduler.update_from_output = update_from_output


def crowded(
    llm: Any, live: list[Request], tickets: Mapping[str, wire.Ticket], *, by_load: bool = False
) -> list[Answer]:
    """Return what requests gave that others crowded in upon for a while, streamed."""
    engine = llm.llm_engine
    _follows.value = _LOAD if by_load else _BATCH
    for index, request in enumerate(live):
        matrix_life.add(engine, f"first-{index}", request, tickets)
    answers: dict[str, Answer] = {}
    step = 0
    while engine.has_unfinished_requests():
        if step == ALONE:
            for index in range(CROWD - len(live)):
                other = Request("Go on\n", "none", "", MANY if by_load else TOKENS)
                matrix_life.add(engine, f"crowd-{index}", other, tickets)
        matrix_life.take(engine, answers)
        step += 1
    _follows.value = _NOTHING
    return [answers[f"first-{index}"] for index in range(len(live))]
