"""How requests finished, as the scheduler knows it: sent to the ranks with the step that tells them of it."""

import functools
from collections.abc import Callable
from typing import Any, Final

from guided_contract.config import PodConfig
from guided_engine.ledger import skip_unless_rank

# On a step's SchedulerOutput, beside finished_req_ids: {request: (vLLM's finish reason, its output tokens)}.
FINISHES_ATTRIBUTE: Final = "guided_finishes"


def tell_finishes(config: PodConfig) -> None:
    """Wrap `_free_request`, which every end comes to once, and `schedule`, which tells the ranks of it."""
    skip_unless_rank(config)
    from vllm.v1.core.sched.scheduler import Scheduler  # noqa: PLC0415 - vLLM is imported only where it is changed

    Scheduler._free_request = _noting(Scheduler._free_request)  # noqa: SLF001 - the seam
    Scheduler.schedule = _telling(Scheduler.schedule)


def _noting(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def free_request(self: Any, request: Any, *arguments: Any, **options: Any) -> Any:
        # Detached, a guided request has its constraint in its parameters alone.
        params = request.sampling_params
        if params is not None and params.structured_outputs is not None:
            finishes = self.__dict__.setdefault(FINISHES_ATTRIBUTE, {})
            reason = str(request.get_finished_reason())
            finishes[request.request_id] = (reason, request.num_output_tokens)
        return original(self, request, *arguments, **options)

    return free_request


def _telling(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def schedule(self: Any, *arguments: Any, **options: Any) -> Any:
        output = original(self, *arguments, **options)
        if finishes := self.__dict__.get(FINISHES_ATTRIBUTE):
            setattr(self, FINISHES_ATTRIBUTE, {})
            setattr(output, FINISHES_ATTRIBUTE, finishes)
        return output

    return schedule
