"""Model Runner V2: a step's edits, applied by vLLM's own interface for logits processors.

`sampler.logits_processors` is a list of which the last is ours: after bias, penalties, bad words and the
grammar's mask, before the thinking budget, temperature and top-k/p, on float32 logits. Rows are found on the
device, so that batch sharding, adaptive verification and verification in chunks (`apply` comes several times
in a step) are right by construction; the host reads nothing.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from vllm.distributed.parallel_state import get_tp_group
from vllm.utils.torch_utils import async_tensor_h2d
from vllm.v1.worker.gpu import model_runner
from vllm.v1.worker.gpu.buffer_utils import UvaBufferPool
from vllm.v1.worker.gpu.sample.logits_processor.interface import LogitsContext, LogitsProcessor

from guided_engine.compat import edits_kernel
from guided_engine.processors import dense
from guided_engine.processors.edits import MOST_IDS
from guided_engine.ranks.rank_guide import RankGuide
from guided_engine.ranks.row_edits import FAULTS, DenseStep, StepEdits
from guided_engine.ranks.step import ReadFaults, RowFault


class EditsV2(LogitsProcessor):  # type: ignore[misc]  # vLLM is untyped here
    """What vLLM's sampler takes for a logits processor: the edits that were staged for this step."""

    def __init__(self, runner: Any, guide: RankGuide) -> None:
        self._guide = guide
        self._states = runner.req_states
        self._device = runner.device
        self._positions = 1 + runner.num_speculative_steps
        slots = self._states.max_num_reqs
        self._table = np.zeros((slots, self._positions, edits_kernel.ENTRY), np.int32)
        size = self._table.size + 2 * MOST_IDS * slots * self._positions
        self._host = UvaBufferPool(self._table.size, torch.int32)  # grows to what a step really has
        self._buffer = torch.zeros(size, dtype=torch.int32, device=self._device)
        self._codes = torch.zeros((slots, self._positions), dtype=torch.int32, device=self._device)
        self._staged: StepEdits | None = None
        self._edits: Any = None
        self._drafts: Mapping[str, Sequence[int]] = {}
        self._read: Any = None
        self._is_sharded = runner.batch_sharder is not None
        if self._is_sharded:
            gather = model_runner.gather_sampler_output
            model_runner.gather_sampler_output = self._sharing(gather)
        if not self._codes.is_cpu:
            self._compile(runner.vocab_size)

    def add_request(self, req_idx: int, sampling_params: Any) -> bool:  # noqa: ARG002 - the interface's
        """Return whether this request has processors: a batch in which none has is left alone.

        A warm-up adds requests that are none.
        """
        return self._guide.has_processors(self._states.index_to_req_id.get(req_idx, ""))

    def stage(self, edits: StepEdits | None, drafts: Mapping[str, Sequence[int]]) -> None:
        """Send a step's edits to the device; `drafts` are those of each request that has some."""
        self._staged, self._drafts = edits, drafts
        self._edits = self._read = None
        if edits is None:
            return
        self._codes.zero_()
        if not len(edits.ids):
            return
        table = self._table
        table.fill(0)
        ends = np.cumsum(edits.counts) + table.size
        starts = ends - edits.counts
        entries = np.stack(
            (starts, starts + len(edits.ids), edits.counts | (edits.modes << edits_kernel.MODE_SHIFT)), axis=1
        )
        rows = np.fromiter(edits.rows.values(), np.intp)
        slots = [self._states.req_id_to_index[request_id] for request_id in edits.rows]
        positions = np.arange(len(entries)) - np.repeat(np.cumsum(rows) - rows, rows)
        table[np.repeat(slots, rows), positions] = entries
        packed = np.concatenate((table.ravel(), edits.ids, edits.values.view(np.int32)))
        self._edits = self._host.copy_to_gpu(packed, out=self._buffer[: len(packed)])

    def apply(self, logits: Any, ctx: LogitsContext) -> Any:
        """Change the rows that this call has; a fault ends the sequences, not the engine."""
        if self._staged is None:
            return logits
        try:
            if self._edits is not None:
                edits_kernel.apply(
                    logits,
                    ctx.expanded_idx_mapping,
                    ctx.expanded_local_pos,
                    self._edits,
                    self._positions,
                    self._codes,
                )
            for step in self._staged.dense:
                self._apply_dense(step, logits, ctx)
            if not self._is_sharded:
                self._read = self._copied()
        except Exception:  # noqa: BLE001 - no rank may leave the others' step
            self._guide.give_up(self._staged)
        return logits

    def taken(self) -> ReadFaults:
        """Forget the step; return what reads its faults once its output's copies have been waited for."""
        read, staged = self._read, self._staged
        self._staged = self._edits = self._read = None
        if read is None or staged is None:
            return dict
        slots = {request_id: self._states.req_id_to_index[request_id] for request_id in staged.rows}

        def faults() -> dict[str, RowFault]:
            codes = read.numpy()
            if not codes.any():
                return {}
            firsts = {name: int((codes[slot] != 0).argmax()) for name, slot in slots.items()}
            return {
                name: RowFault(row, FAULTS[code])
                for name, row in firsts.items()
                if (code := int(codes[slots[name], row]))
            }

        return faults

    def _sharing(self, gather: Callable[..., Any]) -> Callable[..., Any]:
        """Have what one rank finds in its share of a batch told to all, where they gather what they sampled.

        In each step, whether or not this rank has edits: a rank that differs must not wait for the others.
        """

        def gathered(*arguments: Any, **options: Any) -> Any:
            output = gather(*arguments, **options)
            # Each request is one rank's, so that the sums are its codes.
            torch.distributed.all_reduce(self._codes, group=get_tp_group().device_group)
            self._read = self._copied()
            self._codes.zero_()
            return output

        return gathered

    def _copied(self) -> Any:
        """Return the codes as they are now, on the host: a copy also on a CPU, as they are cleared next."""
        return self._codes.to("cpu", non_blocking=True, copy=True)

    def _compile(self, vocab_size: int) -> None:
        """Have the kernel compiled before a request waits for it."""
        row = torch.zeros((1, vocab_size), device=self._device)
        zero = torch.zeros(1, dtype=torch.int32, device=self._device)
        edits_kernel.apply(row, zero, zero, self._buffer, self._positions, self._codes)

    def _apply_dense(self, step: DenseStep, logits: Any, ctx: LogitsContext) -> None:
        slots = ctx.idx_mapping_np.tolist()
        requests = [self._states.index_to_req_id[slot] for slot in slots]
        counts = [1 + len(self._drafts.get(request_id, ())) for request_id in requests]
        if sum(counts) != logits.shape[0]:
            raise RuntimeError("the rows of this step are known to the device alone")
        firsts = dict(zip(requests, (np.cumsum(counts) - counts).tolist(), strict=True))
        here = [index for index, (request_id, _) in enumerate(step.places) if request_id in firsts]
        if not here:
            return
        places = [step.places[index] for index in here]
        rows = [firsts[request_id] + offset for request_id, offset in places]
        slot_of = self._states.req_id_to_index
        owners = [self._positions * slot_of[request_id] + offset for request_id, offset in places]
        index, at = async_tensor_h2d([rows, owners], dtype=torch.int64, device=self._device)
        codes = dense.tried(step.factory, [step.results[i] for i in here], logits, index)
        self._codes.view(-1).scatter_reduce_(0, at, codes, "amax")
