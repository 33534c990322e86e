"""Model Runner V2: masks by its own bitmask kernel, processors on the logits right before it."""

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np
import torch
from vllm.v1.core.sched.output import GrammarOutput

from guided_engine.compat.runner import RunnerAdapter
from guided_engine.ranks.guided_rank import RankGuide
from guided_engine.ranks.step import Masks, ReadSampled

NO_MASKS: Final = Masks([], np.empty((0, 0), dtype=np.int32))


class RunnerV2(RunnerAdapter):
    """Adapter of vllm.v1.worker.gpu.model_runner and its CPU subclass."""

    def __init__(self, runner: Any) -> None:
        self._masker = runner.structured_outputs_worker
        self._apply_bitmask = self._masker.apply_grammar_bitmask
        self._guide: RankGuide | None = None
        # Called with the logits of this step, before upstream's own processors: the one place for ours.
        self._masker.apply_grammar_bitmask = self._apply
        if runner.batch_sharder is not None:
            self._shard = runner.batch_sharder.shard_sampler_inputs
            runner.batch_sharder.shard_sampler_inputs = self._shard_inputs

    def resumed(self, scheduler_output: Any) -> dict[str, Sequence[int]]:  # noqa: ARG002 - the interface's
        """Return nothing: a request comes back as an arrival."""
        return {}

    def known_tokens(self, new_request: Any) -> Sequence[int] | None:
        """Return prompt and output so far."""
        tokens: Sequence[int] | None = new_request.prefill_token_ids
        return tokens

    def carrier(self, output: Any) -> Any:
        """Return the ModelRunnerOutput that will reach the engine core."""
        return output.model_runner_output

    def reader(self, output: Any) -> ReadSampled:
        """Return what reads the step's tokens."""
        return lambda: _read(output)

    def sample(self, original: Callable[[Any], Any], guide: RankGuide, masks: Masks | None) -> Any:
        """Have the runner call `_apply` with its logits; with no row to mask it masks none."""
        if masks is None:
            masks = NO_MASKS
        self._guide = guide
        try:
            return original(GrammarOutput(masks.request_ids, masks.bitmask, masks.acceptable))
        finally:
            self._guide = None

    def _shard_inputs(self, input_batch: Any, grammar_output: Any) -> tuple[Any, Any, Any, Any]:
        """Give this rank its share of a batch; `_apply` is called for one without masks as well."""
        batch, indices, share, metadata = self._shard(input_batch, grammar_output)
        if share is None and self._guide is not None:
            share = GrammarOutput(NO_MASKS.request_ids, NO_MASKS.bitmask, NO_MASKS.acceptable)
        return batch, indices, share, metadata

    def _apply(self, logits: Any, input_batch: Any, request_ids: list[str], bitmask: Any) -> None:
        if self._guide is not None:
            bounds = pairwise(input_batch.cu_num_logits_np.tolist())
            rows = dict(zip(input_batch.req_ids, bounds, strict=False))
            self._guide.apply_processors(rows.get, logits)
        self._apply_bitmask(logits, input_batch, request_ids, bitmask)
        if self._guide is not None and request_ids and not logits.is_cpu:
            # The runner's stream waits for the copy before it masks; on a CPU both are done by now.
            masked = torch.cuda.Event()
            masked.record()
            self._guide.handed_over(masked.synchronize)


def _read(output: Any) -> Iterator[tuple[str, Sequence[int]]]:
    """Wait for this step's tokens alone; get_output() is the executor's to call, and once only."""
    output.copy_event.synchronize()
    counts = output.num_sampled_tokens_np.tolist()
    rows = output.sampled_token_ids.tolist()
    for request_id, row, count in zip(output.model_runner_output.req_ids, rows, counts, strict=False):
        yield request_id, row[:count]
