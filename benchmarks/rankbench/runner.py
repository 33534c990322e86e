"""A Model Runner V2 whose forward pass, sampler and draft model are a clock; its work on masks is vLLM's.

Stock workers make it in place of vLLM's CPU runner (see `plugin`), and GuidedWorker wraps it like any other.
"""

import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
import torch
from vllm.distributed import get_tensor_model_parallel_rank
from vllm.v1.kv_cache_interface import FullAttentionSpec
from vllm.v1.outputs import EMPTY_MODEL_RUNNER_OUTPUT, DraftTokenIds, ModelRunnerOutput

from rankbench.clock import Event, Timeline
from rankbench.documents import TOKENS
from rankbench.drafts import METHODS, drafts_by_method
from rankbench.plugin import ENV_FOLDER
from rankbench.protocol import EngineSpec
from rankbench.sampling import Batch, ExecuteModelState, Sampled, VirtualMasker, VirtualOutput, batch_of
from rankbench.window import Window

FIRST_DOCUMENT: Final = 16  # a prompt's first token less this is its document's row
_LOGITS: Final = torch.empty(1, 1)  # real ones never reach the host; the plugin asks where they lie
_CHECK_EVERY: Final = 4  # steps between those whose masks are looked into


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
        spec = msgspec.json.decode((folder / "spec.json").read_bytes(), type=EngineSpec)
        self._costs = spec.costs
        self._proposals = drafts_by_method(self._documents, self._drafts)
        self._method = ""
        self._timeline = Timeline(
            spec.costs, folder / "timeline", get_tensor_model_parallel_rank(), parallel.tensor_parallel_size
        )
        rows = vllm_config.scheduler_config.max_num_seqs * (1 + self._drafts)
        self.structured_outputs_worker = VirtualMasker(
            rows, vllm_config.model_config.get_vocab_size(), self._drafts
        )
        # What edits of logits are staged for; the kernel that applies them is left to the clock.
        slots = vllm_config.scheduler_config.max_num_seqs
        self.device = torch.device("cpu")
        self.vocab_size = vllm_config.model_config.get_vocab_size()
        self.num_speculative_steps = self._drafts
        self.sampler = SimpleNamespace(logits_processors=[])
        self.req_states = SimpleNamespace(max_num_reqs=slots, req_id_to_index={}, index_to_req_id={})
        self._free = list(range(slots))
        self.batch_sharder = None  # as a Model Runner V2 whose ranks all sample every row
        self._places: dict[str, list[int]] = {}  # request -> [document, tokens generated]
        self._proposed: tuple[list[str], list[list[int]], Event | None] = ([], [], None)
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
            self._leave(request_id)
        for new in scheduler_output.scheduled_new_reqs:
            if len(new.prefill_token_ids) != new.prompt_len:
                raise RuntimeError("a request was preempted: the benchmark's cache is too small")
            self._enter(new.req_id)
            self._places[new.req_id] = [new.prompt_token_ids[0] - FIRST_DOCUMENT, 0]
        if not scheduler_output.total_num_scheduled_tokens:
            return EMPTY_MODEL_RUNNER_OUTPUT
        self.execute_model_state = ExecuteModelState(
            batch_of(scheduler_output),
            self._timeline.launch(scheduler_output.total_num_scheduled_tokens),
            tokens=scheduler_output.total_num_scheduled_tokens,
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
            masker = self.structured_outputs_worker
            masker.apply_grammar_bitmask(_LOGITS, batch, request_ids, grammar_output.grammar_bitmask)
            masker.request_ids = request_ids
            acceptable = dict(
                zip(request_ids, grammar_output.num_acceptable_drafts or [0] * len(request_ids), strict=True)
            )
        masks, masked = self.structured_outputs_worker.take()
        draft_s = 0.0
        if self._drafts:
            method = METHODS[self._method]
            draft_s = method.draft_s(self._costs, self._drafts, state.tokens, len(batch.req_ids))
        self._timeline.sample(
            state.step, 0 if masks is None else masks.nbytes, 0 if masks is None else len(masks), draft_s
        )
        places = np.array([self._places[request_id] for request_id in batch.req_ids])  # [requests, 2]
        documents, positions = places[:, 0], places[:, 1]
        counts = 1 + self._accepted(batch, acceptable, documents, positions)
        columns = np.minimum(positions[:, None] + np.arange(1 + self._drafts), TOKENS - 1)
        sampled = Sampled(self._documents[documents[:, None], columns], counts)
        self._window.step(state.step, len(batch.req_ids), int(counts.sum()), has_prefill=state.has_prefill)
        if masks is not None and self._window.is_open and state.step % _CHECK_EVERY == 0:
            began_ns = time.thread_time_ns()
            self._check(batch, masks, masked, sampled)
            self._window.thread_ns -= time.thread_time_ns() - began_ns
        for request_id, count in zip(batch.req_ids, counts.tolist(), strict=True):
            self._places[request_id][1] += count
        self._propose(state, documents, positions + counts)
        output = ModelRunnerOutput(
            req_ids=batch.req_ids,
            req_id_to_index={request_id: index for index, request_id in enumerate(batch.req_ids)},
        )
        return VirtualOutput(output, sampled, Event(self._timeline, state.step))

    def _enter(self, request_id: str) -> None:
        slot = self._free.pop()
        self.req_states.req_id_to_index[request_id] = slot
        self.req_states.index_to_req_id[slot] = request_id

    def _leave(self, request_id: str) -> None:
        if self._places.pop(request_id, None) is not None:
            slot = self.req_states.req_id_to_index.pop(request_id)
            del self.req_states.index_to_req_id[slot]
            self._free.append(slot)

    def take_draft_token_ids(self) -> DraftTokenIds:
        """Return the last step's drafts, waiting for the draft model; -1 where nobody needs them."""
        request_ids, tokens, event = self._proposed
        if event is not None:
            event.synchronize()
        return DraftTokenIds(request_ids, tokens)

    # --- the benchmark's own questions ---

    def begin_window(self, batch: int, steps: int, profile: str, method: str) -> None:
        """Measure the next `steps` steps of a full batch; draft as this method does from now on."""
        self._method = method
        self._window = Window(batch, steps, profile)

    def report(self) -> Any:
        """Return what the window saw; only on the first rank of the group it is complete."""
        return msgspec.to_builtins(self._window.report(self._timeline))

    def _accepted(
        self,
        batch: Batch,
        acceptable: dict[str, int],
        documents: npt.NDArray[np.int64],
        positions: npt.NDArray[np.int64],
    ) -> npt.NDArray[np.int64]:
        """Return how many drafts of each request sampling accepts."""
        if batch.num_draft_tokens_per_req is None:
            return np.zeros(len(documents), dtype=np.int64)
        right = self._proposals[self._method].right[documents, np.minimum(positions, TOKENS - 1)]
        accepted = np.minimum(right, batch.num_draft_tokens_per_req)
        if acceptable:
            limits = np.array([acceptable.get(request_id, self._drafts) for request_id in batch.req_ids])
            # A right draft is one that the grammar allows; more than none here is a fault of the masks.
            self._window.lost_drafts += int((accepted > limits).sum())
            accepted = np.minimum(accepted, limits)
        made: npt.NDArray[np.int64] = accepted
        return made

    def _propose(
        self, state: ExecuteModelState, documents: npt.NDArray[np.int64], positions: npt.NDArray[np.int64]
    ) -> None:
        request_ids = state.batch.req_ids
        if not self._drafts or not state.batch.has_structured_output_reqs:
            self._proposed = request_ids, [[-1] * self._drafts for _ in request_ids], None
            return
        proposed = self._proposals[self._method].tokens  # [documents, positions, k]
        tokens = proposed[documents, np.minimum(positions, TOKENS - 1)]
        event = Event(self._timeline, state.step, drafted=True)
        self._proposed = request_ids, tokens.tolist(), event

    def _check(self, batch: Batch, masks: npt.NDArray[np.int32], masked: list[str], sampled: Sampled) -> None:
        """Look up every sampled token in its mask."""
        index_of = {request_id: index for index, request_id in enumerate(batch.req_ids)}
        indices = np.array([index_of[request_id] for request_id in masked])
        firsts = batch.rows_before(indices)
        for offset in range(1 + self._drafts):
            reached = sampled.counts[indices] > offset
            tokens = sampled.tokens[indices[reached], offset]
            words = masks[firsts[reached] + offset, tokens >> 5]
            self._window.forbidden += int(((words >> (tokens & 31)) & 1 == 0).sum())
