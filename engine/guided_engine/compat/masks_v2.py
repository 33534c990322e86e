"""Model Runner V2's masker: vLLM's own maps rows to logits in each step, here only when a batch changes."""

from typing import Any, Final

import torch
from vllm.v1.worker.gpu import structured_outputs

# Of vLLM's kernel; a constant of its module since 0.33.
_BLOCK: Final = getattr(structured_outputs, "GRAMMAR_BITMASK_BLOCK_SIZE", 8192)


class MasksV2:
    """Stands for a StructuredOutputsWorker's `apply_grammar_bitmask`."""

    def __init__(self, masker: Any) -> None:
        self._masker = masker
        self._original = masker.apply_grammar_bitmask
        self._layout: tuple[Any, ...] = ()  # of the step before: what its mapping was made of

    def apply(self, logits: Any, input_batch: Any, request_ids: list[str], bitmask: Any) -> None:
        """Mask `logits` by rows of `bitmask` [rows, words], of these requests in this order."""
        drafts = input_batch.num_draft_tokens_per_req
        layout = (
            list(input_batch.req_ids),
            list(request_ids),
            bitmask.shape[0],
            input_batch.cu_num_logits_np.tobytes(),
            None if drafts is None else drafts.tobytes(),
        )
        if layout == self._layout:
            self._apply_again(logits, input_batch, bitmask)
        else:
            self._original(logits, input_batch, request_ids, bitmask)
            self._layout = layout

    def _apply_again(self, logits: Any, input_batch: Any, bitmask: Any) -> None:
        """Do what vLLM's does, but for the mapping, which the device has."""
        masker, rows, vocab_size = self._masker, bitmask.shape[0], logits.shape[-1]
        with torch.cuda.stream(masker.copy_stream):
            copied = structured_outputs.async_tensor_h2d(bitmask, out=masker.grammar_bitmask[:rows])
        stream = torch.cuda.current_stream()
        stream.wait_stream(masker.copy_stream)
        structured_outputs._apply_grammar_bitmask_kernel[rows, -(-vocab_size // _BLOCK)](  # noqa: SLF001 - private
            logits,
            logits.stride(0),
            masker.logits_indices[:rows],
            input_batch.cu_num_logits,
            copied,
            copied.stride(0),
            vocab_size,
            MASK_STRIDE=masker.mask_stride,
            BLOCK_SIZE=_BLOCK,
        )
        masker.copy_stream.wait_stream(stream)
