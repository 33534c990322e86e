"""A Model Runner V2 whose forward pass, sampler and draft model are a clock; its work on masks is vLLM's.

Stock workers make it in place of vLLM's CPU runner (see `plugin`), and GuidedWorker wraps it like any other.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
import torch
from vllm.distributed import get_tensor_model_parallel_rank
from vllm.v1.kv_cache_interface import FullAttentionSpec
from vllm.v1.outputs import EMPTY_MODEL_RUNNER_OUTPUT, DraftTokenIds, ModelRunnerOutput
from vllm.v1.worker.gpu.async_utils import AsyncOutput
from vllm.v1.worker.gpu.structured_outputs import _build_grammar_mapping
from vllm.v1.worker.gpu_worker import Worker

from guided_contract import names
from rankbench import pinned
from rankbench.clock import Costs, Event, Timeline
from rankbench.documents import TOKENS
from rankbench.masks import SampledRow
from rankbench.plugin import ENV_FOLDER
from rankbench.speculation import Drafts
from rankbench.window import Window

FIRST_DOCUMENT: Final = 16  # a prompt's first token less this is its document's row
_LOGITS: Final = torch.empty(0)  # real ones never reach the host; the plugin asks where they lie
_CHECK_EVERY: Final = 4  # steps between rows kept for the comparison of masks


@dataclass(slots=True)
class Batch:
    """What a step's sampling sees of vLLM's InputBatch."""

    req_ids: list[str]
    num_reqs: int
    cu_num_logits_np: npt.NDArray[np.int32]  # [requests + 1]
    num_draft_tokens_per_req: npt.NDArray[np.int32] | None  # [requests]
    num_draft_tokens: int
    has_structured_output_reqs: bool


@dataclass(slots=True)
class ExecuteModelState:
    """A launched step that has not been sampled."""

    batch: Batch
    step: int
    has_prefill: bool


class VirtualOutput(AsyncOutput):  # type: ignore[misc]  # vLLM is untyped here
    """vLLM's own output object over tokens that the host knows already, and a virtual event."""

    def __init__(
        self,
        output: ModelRunnerOutput,
        tokens: npt.NDArray[np.int64],
        counts: npt.NDArray[np.int64],
        event: Event,
    ) -> None:
        self.model_runner_output = output
        self.sampled_token_ids = tokens  # [requests, 1 + k]
        self.num_sampled_tokens_np = counts  # [requests]
        self.copy_event = event
        self.prompt_logprobs_dict: dict[str, Any] = {}
        self.prompt_token_id_logprobs_dict: dict[str, Any] = {}
        self.sampling_mask_tensors = self.num_nans = self.logprobs_tensors = None
        self.pending_aux_output = self._has_fault = None


class VirtualMasker:
    """The host's side of vLLM's StructuredOutputsWorker; the copy and the kernel are left to the clock."""

    def __init__(self, max_rows: int, vocab_size: int, drafts: int) -> None:
        self._stride = 1 + drafts
        # As the caching allocator of pinned memory: mapped once. On a GPU each mask is staged in it.
        self._pinned = np.zeros((max_rows, (vocab_size + 31) // 32), dtype=np.int32)
        self.applied: npt.NDArray[np.int32] | None = None  # [rows, words] of this step
        self.rows_of: dict[str, int] = {}  # request -> its first row

    def apply_grammar_bitmask(
        self, _logits: Any, input_batch: Batch, grammar_req_ids: list[str], grammar_bitmask: Any
    ) -> None:
        """Stage the masks and make their mapping to logits, as vLLM does."""
        if not grammar_req_ids:
            return
        rows = len(grammar_bitmask)
        self.applied = grammar_bitmask
        if not pinned.is_pinned(grammar_bitmask):
            np.copyto(self._pinned[:rows], grammar_bitmask)
            self.applied = self._pinned[:rows]
        mapping = _build_grammar_mapping(
            input_batch.req_ids,
            grammar_req_ids,
            input_batch.cu_num_logits_np,
            input_batch.num_draft_tokens_per_req,
            1,
            self._stride,
        )
        torch.tensor(mapping, dtype=torch.int32)
        if len(mapping) != rows:
            raise RuntimeError(f"{rows} mask rows for {len(mapping)} rows of logits")
        self.rows_of = {}
        row = 0
        for request_id in grammar_req_ids:
            self.rows_of[request_id] = row
            row += 1 + self._drafts(input_batch, request_id)

    def take(self) -> tuple[npt.NDArray[np.int32] | None, dict[str, int]]:
        """Return this step's masks and each request's first row in them; None: nothing was masked."""
        taken = self.applied, self.rows_of
        self.applied, self.rows_of = None, {}
        return taken

    def _drafts(self, batch: Batch, request_id: str) -> int:
        if batch.num_draft_tokens_per_req is None:
            return 0
        return int(batch.num_draft_tokens_per_req[batch.req_ids.index(request_id)])


class VirtualRunner:
    """Generates the documents of `documents.npy`, as many tokens a step as drafts are right."""

    def __init__(self, vllm_config: Any, _device: Any) -> None:
        folder = Path(os.environ[ENV_FOLDER])
        parallel = vllm_config.parallel_config
        self.vllm_config = vllm_config
        self.kv_caches: list[Any] = []
        self.is_pooling_model = False
        self.model_memory_usage = 0
        self.execute_model_state: ExecuteModelState | None = None
        self._drafts = int(vllm_config.num_speculative_tokens)
        self._documents = np.load(folder / "documents.npy")  # [documents, tokens] int64
        self._proposals = Drafts.make(self._documents, self._drafts) if self._drafts else None
        self._timeline = Timeline(
            msgspec.json.decode((folder / "costs.json").read_bytes(), type=Costs),
            folder / "timeline",
            get_tensor_model_parallel_rank(),
            parallel.tensor_parallel_size,
            drafts=bool(self._drafts),
        )
        rows = vllm_config.scheduler_config.max_num_seqs * (1 + self._drafts)
        self.structured_outputs_worker = VirtualMasker(
            rows, vllm_config.model_config.get_vocab_size(), self._drafts
        )
        self.batch_sharder = None  # as a Model Runner V2 whose ranks all sample every row
        self._places: dict[str, list[int]] = {}  # request -> [document, tokens generated]
        self._proposed: tuple[list[str], npt.NDArray[np.int64] | None, Event | None] = ([], None, None)
        self._window = Window(0, 0)

    # --- what a worker asks of its runner ---

    def load_model(self, *, load_dummy_weights: bool = False) -> None:
        """Load nothing."""

    def get_model(self) -> Any:
        """Return a module without parameters."""
        return torch.nn.Module()

    def get_supported_tasks(self) -> tuple[str, ...]:
        """Return what the engine core may ask for."""
        return ("generate",)

    def get_kv_cache_spec(self) -> dict[str, Any]:
        """Return one small layer, so that the scheduler keeps its books."""
        block = self.vllm_config.cache_config.block_size
        spec = FullAttentionSpec(block_size=block, num_kv_heads=1, head_size=32, dtype=torch.bfloat16)
        return {"layer": spec}

    def initialize_kv_cache(self, *_args: Any, **_kwargs: Any) -> None:
        """Allocate nothing."""

    def update_max_model_len(self, _length: int) -> None:
        """Ignore it: no buffer depends on it."""

    def reset_mm_cache(self) -> None:
        """Have no cache."""

    def reset_encoder_cache(self) -> None:
        """Have no cache."""

    def shutdown(self) -> None:
        """End nothing."""

    # --- a step ---

    def execute_model(self, scheduler_output: Any, _intermediate: Any = None, **_kwargs: Any) -> Any:
        """Launch a forward pass; returns at once, as on a GPU."""
        for request_id in scheduler_output.finished_req_ids:
            self._places.pop(request_id, None)
        for new in scheduler_output.scheduled_new_reqs:
            if len(new.prefill_token_ids) != new.prompt_len:
                raise RuntimeError("a request was preempted: the benchmark's cache is too small")
            self._places[new.req_id] = [new.prompt_token_ids[0] - FIRST_DOCUMENT, 0]
        if not scheduler_output.total_num_scheduled_tokens:
            return EMPTY_MODEL_RUNNER_OUTPUT
        self.execute_model_state = ExecuteModelState(
            _batch(scheduler_output),
            self._timeline.launch(),
            has_prefill=bool(scheduler_output.scheduled_new_reqs),
        )
        return None

    def sample_tokens(self, grammar_output: Any) -> Any:
        """Apply the masks and sample; returns at once, with events to wait for."""
        state = self.execute_model_state
        if state is None:
            return None
        self.execute_model_state = None
        batch = state.batch
        acceptable: dict[str, int] = {}
        if grammar_output is not None:
            request_ids = grammar_output.structured_output_request_ids
            self.structured_outputs_worker.apply_grammar_bitmask(
                _LOGITS, batch, request_ids, grammar_output.grammar_bitmask
            )
            acceptable = dict(
                zip(request_ids, grammar_output.num_acceptable_drafts or [0] * len(request_ids), strict=True)
            )
        masks, rows_of = self.structured_outputs_worker.take()
        self._timeline.sample(
            state.step, 0 if masks is None else masks.nbytes, 0 if masks is None else len(masks)
        )
        places = np.array([self._places[request_id] for request_id in batch.req_ids])  # [requests, 2]
        documents, positions = places[:, 0], places[:, 1]
        counts = 1 + self._accepted(batch, acceptable, documents, positions)
        columns = np.minimum(positions[:, None] + np.arange(1 + self._drafts), TOKENS - 1)
        tokens = self._documents[documents[:, None], columns]  # [requests, 1 + k]
        self._window.step(state.step, len(batch.req_ids), int(counts.sum()), has_prefill=state.has_prefill)
        if masks is not None and self._window.is_open and state.step % _CHECK_EVERY == 0:
            self._check(batch, masks, rows_of, tokens, counts)
        for request_id, count in zip(batch.req_ids, counts.tolist(), strict=True):
            self._places[request_id][1] += count
        self._propose(batch, documents, positions + counts, state.step)
        output = ModelRunnerOutput(
            req_ids=batch.req_ids,
            req_id_to_index={request_id: index for index, request_id in enumerate(batch.req_ids)},
        )
        return VirtualOutput(output, tokens, counts, Event(self._timeline, state.step))

    def take_draft_token_ids(self) -> DraftTokenIds:
        """Return the last step's drafts, waiting for the draft model; -1 where nobody needs them."""
        request_ids, tokens, event = self._proposed
        if tokens is None or event is None:
            return DraftTokenIds(request_ids, [[-1] * self._drafts for _ in request_ids])
        event.synchronize()
        return DraftTokenIds(request_ids, tokens.tolist())

    # --- the benchmark's own questions ---

    def begin_window(self, batch: int, steps: int, profile: str) -> None:
        """Measure the next `steps` steps of a full batch."""
        self._window = Window(batch, steps, profile)

    def report(self) -> dict[str, Any]:
        """Return what the window saw; only on the first rank of the group it is complete."""
        made: dict[str, Any] = msgspec.to_builtins(
            self._window.report(self._timeline), builtin_types=(bytes,)
        )
        return made

    def count_shipped(self, size: int) -> None:
        """Count masks that came from the engine core."""
        self._window.ship(size)

    def _accepted(
        self,
        batch: Batch,
        acceptable: dict[str, int],
        documents: npt.NDArray[np.int64],
        positions: npt.NDArray[np.int64],
    ) -> npt.NDArray[np.int64]:
        """Return how many drafts of each request sampling accepts."""
        if self._proposals is None or batch.num_draft_tokens_per_req is None:
            return np.zeros(len(documents), dtype=np.int64)
        right = self._proposals.right[documents, np.minimum(positions, TOKENS - 1)]
        accepted = np.minimum(right, batch.num_draft_tokens_per_req)
        if acceptable:
            limits = np.array([acceptable.get(request_id, self._drafts) for request_id in batch.req_ids])
            # A right draft is one that the grammar allows; more than none here is a fault of the masks.
            self._window.lost_drafts += int((accepted > limits).sum())
            accepted = np.minimum(accepted, limits)
        made: npt.NDArray[np.int64] = accepted
        return made

    def _propose(
        self,
        batch: Batch,
        documents: npt.NDArray[np.int64],
        positions: npt.NDArray[np.int64],
        step: int,
    ) -> None:
        tokens = None
        if self._proposals is not None and batch.has_structured_output_reqs:
            tokens = self._proposals.tokens[documents, np.minimum(positions, TOKENS - 1)]
        self._proposed = (batch.req_ids, tokens, Event(self._timeline, step, drafted=True))

    def _check(
        self,
        batch: Batch,
        masks: npt.NDArray[np.int32],
        rows_of: dict[str, int],
        tokens: npt.NDArray[np.int64],
        counts: npt.NDArray[np.int64],
    ) -> None:
        """Look up every sampled token in its mask, and keep one row for the comparison."""
        index_of = {request_id: index for index, request_id in enumerate(batch.req_ids)}
        indices = np.array([index_of[request_id] for request_id in rows_of])
        firsts = np.array(list(rows_of.values()))
        for offset in range(1 + self._drafts):
            reached = counts[indices] > offset
            sampled = tokens[indices[reached], offset]
            words = masks[firsts[reached] + offset, sampled >> 5]
            self._window.forbidden += int(((words >> (sampled & 31)) & 1 == 0).sum())
        number = self._window.steps_seen % len(rows_of)
        request_id, first = list(rows_of.items())[number]
        document, generated = self._places[request_id]
        offset = self._window.steps_seen % int(counts[index_of[request_id]])
        self._window.rows.append(
            SampledRow(
                sequence=document,
                tokens=self._documents[document, : generated + offset].tolist(),
                mask=masks[first + offset].tobytes(),
            )
        )


def _batch(scheduler_output: Any) -> Batch:
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
        num_draft_tokens_per_req=counts,
        num_draft_tokens=0 if counts is None else int(counts.sum()),
        has_structured_output_reqs=scheduler_output.has_structured_output_requests,
    )


def _counts(worker: Any) -> tuple[int, int]:
    """Return the mask rows that a worker of ours has filled, and those of them that it copied."""
    guided = getattr(worker, "_guided", None)
    if guided is None:
        return 0, 0
    counts = guided._guide._bitmasks.counts  # noqa: SLF001 - nothing else asks for them
    return counts.rows, counts.reused


def _extend_workers() -> None:
    """Give every worker class, ours and upstream's, the benchmark's questions and the count of masks."""
    original = Worker.sample_tokens

    def sample_tokens(self: Any, grammar_output: Any) -> Any:
        if grammar_output is not None:
            self.model_runner.count_shipped(grammar_output.grammar_bitmask.nbytes)
        return original(self, grammar_output)

    def begin_window(self: Any, batch: int, steps: int, profile: str) -> None:
        self.rankbench_counts = _counts(self)
        self.model_runner.begin_window(batch, steps, profile)

    def window_report(self: Any) -> dict[str, Any]:
        made: dict[str, Any] = self.model_runner.report()
        rows, reused = (
            now - before for now, before in zip(_counts(self), self.rankbench_counts, strict=True)
        )
        return made | {"filled": rows, "reused": reused}

    Worker.sample_tokens = sample_tokens
    Worker.rankbench_begin = begin_window
    Worker.rankbench_report = window_report


_extend_workers()
if os.environ.get(names.ENV_CONFIG):
    pinned.watch()
