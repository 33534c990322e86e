"""What sampling sees and leaves on a virtual GPU: the batch, the masks, and the tokens with their event.

The host's side of vLLM's own objects; copies and kernels are left to the clock.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
import vllm.v1.worker.cpu.shm  # noqa: F401 - streams that a CPU lacks
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.worker.gpu import structured_outputs
from vllm.v1.worker.gpu.async_utils import AsyncOutput

from rankbench import device
from rankbench.clock import Event


@dataclass(slots=True)
class Batch:
    """What a step's sampling sees of vLLM's InputBatch."""

    req_ids: list[str]
    num_reqs: int
    cu_num_logits_np: npt.NDArray[np.int32]  # [requests + 1]
    cu_num_logits: Any  # a device's
    num_draft_tokens_per_req: npt.NDArray[np.int32] | None  # [requests]
    num_draft_tokens: int
    has_structured_output_reqs: bool

    def rows_before(self, indices: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the first mask row of each of these requests, if they alone are masked, in that order."""
        drafts = self.num_draft_tokens_per_req
        rows = np.ones_like(indices) if drafts is None else 1 + drafts[indices].astype(np.int64)
        return np.cumsum(rows) - rows


class Sampled(NamedTuple):
    """What a step has sampled: of each request's tokens the first `counts`."""

    tokens: npt.NDArray[np.int64]  # [requests, 1 + k]
    counts: npt.NDArray[np.int64]  # [requests]


@dataclass(slots=True)
class ExecuteModelState:
    """A launched step that has not been sampled."""

    batch: Batch
    step: int
    tokens: int  # of its forward pass
    has_prefill: bool


class VirtualOutput(AsyncOutput):  # type: ignore[misc]  # vLLM is untyped here
    """vLLM's own output object over tokens that the host knows already, and a virtual event."""

    def __init__(self, output: ModelRunnerOutput, sampled: Sampled, event: Event) -> None:
        self.model_runner_output = output
        self.sampled_token_ids, self.num_sampled_tokens_np = sampled
        self.copy_event = event
        self.prompt_logprobs_dict: dict[str, Any] = {}
        self.prompt_token_id_logprobs_dict: dict[str, Any] = {}
        self.sampling_mask_tensors = self.num_nans = self.logprobs_tensors = None
        self.pending_aux_output = self._has_fault = None


class _Kernel:
    """Stands for a Triton kernel: its work is left to the clock, its launch is not charged."""

    def __getitem__(self, _grid: Any) -> Callable[..., None]:
        return lambda *_arguments, **_constants: None


class VirtualMasker(structured_outputs.StructuredOutputsWorker):  # type: ignore[misc]  # vLLM is untyped here
    """vLLM's StructuredOutputsWorker, whose copies and kernel are left to the clock."""

    def __init__(self, max_rows: int, vocab_size: int, drafts: int) -> None:
        super().__init__(max_rows, vocab_size, torch.device("cpu"), 1 + drafts, 1)
        # As the caching allocator of pinned memory: mapped once. On a GPU each mask is staged in it.
        self._pinned = np.zeros((max_rows, (vocab_size + 31) // 32), dtype=np.int32)
        self.applied: npt.NDArray[np.int32] | None = None  # [rows, words] of this step
        self.request_ids: list[str] = []  # whose rows they are, in their order
        vars(structured_outputs)["async_tensor_h2d"] = self._copied
        vars(structured_outputs)["_apply_grammar_bitmask_kernel"] = _Kernel()

    def _copied(self, masks: npt.NDArray[np.int32], *, out: Any) -> Any:
        """Stage masks as vLLM does."""
        self.applied = masks
        if not device.is_pinned(masks):
            rows = len(masks)
            np.copyto(self._pinned[:rows], masks)
            self.applied = self._pinned[:rows]
        return out

    def take(self) -> tuple[npt.NDArray[np.int32] | None, list[str]]:
        """Return this step's masks and the requests whose rows they are; None: nothing was masked."""
        taken = self.applied, self.request_ids
        self.applied, self.request_ids = None, []
        return taken


def batch_of(scheduler_output: Any) -> Batch:
    """Return what a step's sampling will see."""
    scheduled = scheduler_output.num_scheduled_tokens
    drafts = scheduler_output.scheduled_spec_decode_tokens
    request_ids = list(scheduled)
    counts = None
    ends = np.arange(len(request_ids) + 1, dtype=np.int32)
    if drafts:
        counts = np.fromiter((len(drafts.get(r, ())) for r in request_ids), np.int32, len(request_ids))
        ends[1:] += np.cumsum(counts, dtype=np.int32)
    return Batch(
        req_ids=request_ids,
        num_reqs=len(request_ids),
        cu_num_logits_np=ends,
        cu_num_logits=None,
        num_draft_tokens_per_req=counts,
        num_draft_tokens=0 if counts is None else int(counts.sum()),
        has_structured_output_reqs=scheduler_output.has_structured_output_requests,
    )
