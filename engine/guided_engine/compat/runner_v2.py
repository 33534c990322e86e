"""Model Runner V2: masks by its own bitmask kernel, edits by its interface for logits processors."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from guided_engine.compat.masks_v2 import MasksV2
from guided_engine.compat.runner import Copied, grammar_output, tell_faults
from guided_engine.ranks.rank_guide import RankGuide
from guided_engine.ranks.row_edits import StepEdits
from guided_engine.ranks.step import Masks, ReadFaults, ReadSampled, SampledTokens

if TYPE_CHECKING:
    from guided_engine.compat.edits_v2 import EditsV2


class RunnerV2:
    """Adapter of vllm.v1.worker.gpu.model_runner and its CPU subclass; see RunnerV1."""

    def __init__(self, runner: Any, guide: RankGuide) -> None:
        self._guide = guide
        masker = runner.structured_outputs_worker
        self._masks = MasksV2(masker)
        masker.apply_grammar_bitmask = self._apply
        self._edits: EditsV2 | None = None
        if guide.has_factories:
            from guided_engine.compat import edits_v2  # noqa: PLC0415 - Triton, where it is needed

            self._edits = edits_v2.EditsV2(runner, guide)
            runner.sampler.logits_processors.append(self._edits)

    def carrier(self, output: Any) -> Any:
        """Return the ModelRunnerOutput that will reach the engine core."""
        return output.model_runner_output

    def reader(self, output: Any) -> ReadSampled:
        """Return what reads the step's tokens."""
        return Copied(output.copy_event, partial(_tokens, output))

    def sample(
        self, original: Callable[[Any], Any], masks: Masks | None, edits: StepEdits | None
    ) -> tuple[Any, ReadFaults]:
        """Have the runner mask and sample; what its sampler calls has the edits by then."""
        if self._edits is None:
            return original(grammar_output(masks)), dict
        try:
            self._edits.stage(edits, self._guide.scheduled_drafts)
        except Exception:  # noqa: BLE001 - no rank may leave the others' step
            self._edits.taken()
            if edits is not None:
                self._guide.give_up(edits)
        try:
            output = original(grammar_output(masks))
        finally:
            faults = self._edits.taken()
        if edits is not None:
            tell_faults(output, faults)
        return output, faults

    def _apply(self, logits: Any, input_batch: Any, request_ids: list[str], bitmask: Any) -> None:
        if not request_ids:
            return
        self._masks.apply(logits, input_batch, request_ids, bitmask)
        if not logits.is_cpu:
            # The runner's stream waits for the copy before it masks; on a CPU both are done by now.
            masked = torch.cuda.Event()
            masked.record()
            self._guide.handed_over(masked.synchronize)


def _tokens(output: Any) -> SampledTokens:
    tokens, counts = (
        np.asarray(one, np.int64) for one in (output.sampled_token_ids, output.num_sampled_tokens_np)
    )
    return SampledTokens(output.model_runner_output.req_ids, tokens, counts)
