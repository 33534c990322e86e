"""Faults of vLLM's that docs/upstream-quirks.md tells of, and nothing of ours mends: here they still are."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # vLLM's own imports warn
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "required": ["a"]}}}


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


def test_a_call_that_is_cut_takes_the_whole_ones_before_it_along() -> None:
    whole = '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>'
    _, text, calls = hermes().parse(f'{whole}\n<tool_call>\n{{"name": "f", "ar', asked(), True)
    assert not calls
    assert text is not None
    assert text.startswith(whole)


def test_a_call_that_is_cut_after_its_name_is_streamed_with_arguments_that_nobody_wrote() -> None:
    cut = '<tool_call>\n{"name": "f", "ar'
    told = hermes().parse_delta(cut, [1, 2, 3], asked(), [9], finished=True)
    assert [(call.function.name, call.function.arguments) for call in told.tool_calls] == [("f", "{}")]


def test_an_answer_is_taken_for_reasoning_that_the_request_does_not_want() -> None:
    from vllm.reasoning.deepseek_r1_reasoning_parser import DeepSeekR1ReasoningParser

    request, answer = asked(include_reasoning=False), '{"a": 1}'
    assert request.resolve_reasoning_ended(None, [9]), "so that the constraint holds from the first token"
    reasoning = DeepSeekR1ReasoningParser(vocabulary("<think>", "</think>"))
    assert reasoning.extract_reasoning(answer, request) == (answer, None)


def hermes() -> Any:
    from vllm.parser.abstract_parser import DelegatingParser
    from vllm.tool_parsers.hermes_tool_parser import Hermes2ProToolParser

    class Parser(DelegatingParser):
        tool_parser_cls = Hermes2ProToolParser

    return Parser(vocabulary("<tool_call>", "</tool_call>"), [TOOL])


def asked(**more: Any) -> Any:
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest

    message = {"role": "user", "content": "x"}
    return ChatCompletionRequest.model_validate({"messages": [message], "tools": [TOOL], **more})


def vocabulary(*tokens: str) -> Any:
    return SimpleNamespace(get_vocab=lambda: {token: number for number, token in enumerate(tokens)})
