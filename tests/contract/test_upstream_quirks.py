"""Faults of vLLM's that docs/upstream-quirks.md tells of, and nothing of ours mends: here they still are."""

from types import SimpleNamespace

import torch


def test_a_thinking_budget_of_v1_stays_in_its_slot_for_whom_is_moved_there() -> None:
    from vllm import SamplingParams
    from vllm.v1.sample.logits_processor.interface import BatchUpdate, MoveDirectionality
    from vllm.v1.sample.thinking_budget_state import ThinkingBudgetStateHolder

    opens, closes, other = 7, 8, 5
    reasoning = SimpleNamespace(reasoning_start_token_ids=[opens], reasoning_end_token_ids=[closes])
    budgets = ThinkingBudgetStateHolder(reasoning, 4, 0, torch.device("cpu"), is_pin_memory=False)
    limited = (0, SamplingParams(thinking_token_budget=1), [opens], [])
    free = (1, SamplingParams(), [other], [])
    budgets.sync_batch(BatchUpdate(2, [], [limited, free], []))
    # The first ends; InputBatch.condense moves the second into its slot, which is not told as removed then.
    budgets.sync_batch(BatchUpdate(1, [], [], [(1, 0, MoveDirectionality.UNIDIRECTIONAL)]))
    budgets.update_state([[other, other]], None)
    row = torch.full((1, 10), -torch.inf)
    assert budgets.apply_to_logits(row, predict_bonus_token=False, spec_token_ids=None).argmax() == closes


def test_v1_takes_drafts_that_are_not_verified_yet_for_tokens_of_min_tokens() -> None:
    from vllm import SamplingParams
    from vllm.v1.sample.logits_processor.builtin import MinTokensLogitsProcessor
    from vllm.v1.sample.logits_processor.interface import BatchUpdate

    end, real = 1, 5
    processor = MinTokensLogitsProcessor(SimpleNamespace(), torch.device("cpu"), is_pin_memory=False)
    params = SamplingParams(min_tokens=4)
    params._all_stop_token_ids = {end}
    output = [real]
    processor.update_state(BatchUpdate(1, [], [(0, params, [], output)], []))
    # Async scheduling, three drafts in flight: `_update_states` of vllm.v1.worker.gpu_model_runner.
    output.extend([-1] * 3)
    processor.update_state(None)
    # All refused: it is at two tokens of four, and may end.
    output[1:] = [real]
    processor.update_state(None)
    assert processor.apply(torch.zeros(1, 10))[0, end] == 0
