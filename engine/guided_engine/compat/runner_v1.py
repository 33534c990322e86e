"""Model Runner V1: masks and processors on the logits that execute_model left behind."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from vllm.v1.core.sched.output import GrammarOutput
from vllm.v1.outputs import AsyncModelRunnerOutput

from guided_engine.compat.runner import RunnerAdapter
from guided_engine.ranks.guided_rank import RankGuide
from guided_engine.ranks.step import Masks, ReadSampled


class RunnerV1(RunnerAdapter):
    """Adapter of vllm.v1.worker.gpu_model_runner and its CPU subclass."""

    def __init__(self, runner: Any) -> None:
        self._runner = runner

    def resumed(self, scheduler_output: Any) -> dict[str, Sequence[int]]:
        """Return all tokens of requests that come back after preemption."""
        cached = scheduler_output.scheduled_cached_reqs
        return {request_id: cached.all_token_ids[request_id] for request_id in cached.resumed_req_ids}

    def known_tokens(self, new_request: Any) -> Sequence[int] | None:  # noqa: ARG002 - the interface's
        """Return None: an arriving request is always new here."""
        return None

    def carrier(self, output: Any) -> Any:
        """Return the ModelRunnerOutput that will reach the engine core."""
        if isinstance(output, AsyncModelRunnerOutput):
            return output._model_runner_output  # noqa: SLF001 - get_output() would wait, and is once
        return output

    def reader(self, output: Any) -> ReadSampled:
        """Return what reads the step's tokens."""
        if isinstance(output, AsyncModelRunnerOutput):
            return lambda: _read_async(output)
        return lambda: zip(output.req_ids, output.sampled_token_ids, strict=True)

    def sample(self, original: Callable[[Any], Any], guide: RankGuide, masks: Masks | None) -> Any:
        """Process and mask the logits that wait in execute_model_state."""
        state = self._runner.execute_model_state
        rows = _rows(self._runner.input_batch.req_ids, state.scheduler_output.scheduled_spec_decode_tokens)
        guide.apply_processors(rows.get, state.logits)
        if masks is None:
            return original(None)
        return original(GrammarOutput(masks.request_ids, masks.bitmask, masks.acceptable))


def _rows(request_ids: Sequence[str], drafts: dict[str, list[int]]) -> dict[str, tuple[int, int]]:
    """Return each request's first row of the logits and the row after its last."""
    rows = {}
    first = 0
    for request_id in request_ids:
        end = first + 1 + len(drafts.get(request_id, ()))
        rows[request_id] = (first, end)
        first = end
    return rows


def _read_async(output: Any) -> Iterator[tuple[str, Sequence[int]]]:
    """Wait for this step's tokens alone; get_output() is the executor's to call, and once only."""
    output.async_copy_ready_event.synchronize()
    request_ids = output._model_runner_output.req_ids  # noqa: SLF001 - see RunnerV1.carrier
    discarded = set(output._invalid_req_indices)  # noqa: SLF001 - prefill chunks sample nothing
    for index, row in enumerate(output.sampled_token_ids_cpu.tolist()):
        # Rejected drafts are -1 or lie outside the vocabulary.
        tokens = [] if index in discarded else [token for token in row if 0 <= token < output.vocab_size]
        yield request_ids[index], tokens
