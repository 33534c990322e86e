"""Model Runner V1: masks and edits on the logits that execute_model left behind.

Edits come after the mask, before bias and penalties, and the rows that have some go through the host: vLLM's
own interface here knows batch slots alone, and refuses processors under speculation.
"""

import itertools
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from vllm.v1.core.sched.output import GrammarOutput
from vllm.v1.outputs import AsyncModelRunnerOutput
from vllm.v1.structured_output.utils import apply_grammar_bitmask

from guided_engine.compat.runner import Copied, add_faults, grammar_output, tell_faults
from guided_engine.processors import dense
from guided_engine.processors.edits import apply
from guided_engine.ranks.rank_guide import RankGuide
from guided_engine.ranks.row_edits import FAULTS, StepEdits
from guided_engine.ranks.step import Masks, ReadFaults, ReadSampled, RowFault, SampledTokens


class RunnerV1:
    """Adapter of vllm.v1.worker.gpu_model_runner and its CPU subclass."""

    def __init__(self, runner: Any, guide: RankGuide) -> None:
        self._runner = runner
        self._guide = guide

    def carrier(self, output: Any) -> Any:
        """Return this step's ModelRunnerOutput, which will reach the engine core; never a shared one."""
        if isinstance(output, AsyncModelRunnerOutput):
            return output._model_runner_output  # noqa: SLF001 - get_output() would wait, and is once
        return output

    def reader(self, output: Any) -> ReadSampled:
        """Return what reads the step's tokens once its own copy to the host is done."""
        if isinstance(output, AsyncModelRunnerOutput):
            return Copied(output.async_copy_ready_event, partial(_tokens, output))
        return _Sampled(output)

    def sample(
        self, original: Callable[[Any], Any], masks: Masks | None, edits: StepEdits | None
    ) -> tuple[Any, ReadFaults]:
        """Mask and change the logits that wait in execute_model_state; faults are known before it samples.

        Returns the runner's output, and what reads which rows of sequences their processors spoiled.
        """
        faults: dict[str, RowFault] = {}
        grammar = grammar_output(masks)
        if edits is None:
            return original(grammar), dict
        try:
            faults = self._change(edits, grammar)
        except Exception:  # noqa: BLE001 - no rank may leave the others' step
            self._guide.give_up(edits)
        output = original(grammar)  # to mask once more changes nothing
        if faults:
            if isinstance(output, AsyncModelRunnerOutput):
                tell_faults(output, lambda: faults)
            else:
                add_faults(output, faults)
        return output, lambda: faults

    def _change(self, edits: StepEdits, grammar: GrammarOutput | None) -> dict[str, RowFault]:
        state = self._runner.execute_model_state
        drafts = state.scheduler_output.scheduled_spec_decode_tokens
        logits = state.logits.float()
        self._runner.execute_model_state = state._replace(logits=logits)
        if grammar is not None:
            # Else nobody would see that what the edits leave the grammar forbids.
            apply_grammar_bitmask(state.scheduler_output, grammar, self._runner.input_batch, logits)
        return _apply(edits, _firsts(self._runner.input_batch.req_ids, drafts), logits)


def _apply(edits: StepEdits, firsts: Mapping[str, int], logits: Any) -> dict[str, RowFault]:
    """Change rows of `logits` [rows, vocabulary] float32 in place; return which of them are spoiled."""
    codes: dict[tuple[str, int], int] = {}
    places = [
        (request_id, firsts[request_id] + offset, change) for request_id, offset, change in edits.each()
    ]
    numbers = [row for _, row, _ in places]
    # A CPU's rows are changed where they are: to copy them takes longer than all else.
    copies = None if logits.is_cpu or not places else logits[numbers].cpu()
    rows = [logits[row].numpy() for row in numbers] if copies is None else copies.numpy()
    for (request_id, number, change), row in zip(places, rows, strict=True):
        if not apply(change, row):
            codes[request_id, number - firsts[request_id]] = dense.IS_EMPTY
    if copies is not None:
        logits[numbers] = copies.to(logits.device)
    for step in edits.dense:
        index = torch.tensor([firsts[request_id] + offset for request_id, offset in step.places])
        found = dense.tried(step.factory, step.results, logits, index.to(logits.device)).tolist()
        for place, code in zip(step.places, found, strict=True):
            if code:
                codes[place] = max(code, codes.get(place, code))
    # Of each request the first one.
    return {name: RowFault(row, FAULTS[codes[name, row]]) for name, row in sorted(codes, reverse=True)}


def _firsts(request_ids: Sequence[str], drafts: dict[str, list[int]]) -> dict[str, int]:
    """Return each request's first row of the logits."""
    counts = [1 + len(drafts.get(request_id, ())) for request_id in request_ids]
    return dict(zip(request_ids, itertools.accumulate(counts, initial=0), strict=False))


class _Sampled:
    """The tokens of an output that has them."""

    def __init__(self, output: Any) -> None:
        # The engine core takes away what a sequence that ends has in this very list.
        self._sampled = SampledTokens.of(list(output.req_ids), output.sampled_token_ids)

    def is_here(self) -> bool:
        return True

    def read(self) -> SampledTokens:
        return self._sampled


def _tokens(output: Any) -> SampledTokens:
    tokens = output.sampled_token_ids_cpu.numpy().astype(np.int64)
    # Rejected drafts, behind the others, are -1 or lie outside the vocabulary.
    counts = ((tokens >= 0) & (tokens < output.vocab_size)).sum(axis=1)
    counts[list(output._invalid_req_indices)] = 0  # noqa: SLF001 - prefill chunks sample nothing
    return SampledTokens(output._model_runner_output.req_ids, tokens, counts)  # noqa: SLF001 - see carrier
