"""The engine's reasoning parser, asked as upstream's engine core asks it."""

from collections.abc import Callable, Sequence
from typing import Any

from vllm.parser.engine.adapters import ParserEngineReasoningAdapter
from vllm.reasoning import ReasoningParserManager
from vllm.tokenizers import cached_tokenizer_from_config

from guided_engine.compat import minor
from guided_engine.matchers.reasoning import Boundary, Reasoner


def import_plugin(vllm_config: Any) -> None:
    """Make the engine's own reasoning parser known in this process, where it comes from a file.

    vLLM leaves that out in workers, and fails there where it copies its configuration for a draft model
    (v1/worker/gpu/spec_decode/standalone_ar/speculator.py).
    """
    plugin = vllm_config.structured_outputs_config.reasoning_parser_plugin
    if plugin:
        ReasoningParserManager.import_reasoning_parser(plugin)


def reasoner_factory(vllm_config: Any) -> Callable[[dict[str, Any]], Reasoner] | None:
    """Return what makes a sequence's reasoner from the request's own arguments for the parser.

    Needs `import_plugin`. None where grammars hold from the first token: without a parser, or with
    `enable_in_reasoning`.
    """
    wanted, model = vllm_config.structured_outputs_config, vllm_config.model_config
    if not wanted.reasoning_parser or wanted.enable_in_reasoning or model.skip_tokenizer_init:
        return None
    parser = ReasoningParserManager.get_reasoning_parser(wanted.reasoning_parser)
    tokenizer = cached_tokenizer_from_config(model)
    return lambda arguments: EngineReasoner(parser(tokenizer=tokenizer, **arguments))


class EngineReasoner:
    """A request's parser, read as StructuredOutputManager._get_constraint_bounds does since 0.32.

    But for one that answers None, as vLLM's for granite: a grammar would wait for it for ever.
    """

    def __init__(self, parser: Any) -> None:
        self._parser = parser

    def has_ended(self, prompt: Sequence[int]) -> bool:
        """Return whether nothing is to be reasoned after this prompt, as far as the parser can tell."""
        return self._parser.is_reasoning_end(prompt) is not False

    def boundary(self, before: list[int], tokens: Sequence[int]) -> Boundary:
        """Return where reasoning ends in `tokens`; see matchers.reasoning.Reasoner."""
        end = self._found(tokens)
        if end is not None:
            offset, is_content = end
            return Boundary(offset if is_content else offset + 1, offset + 1)
        first = self._shortest_end(before, list(tokens))
        return Boundary(first, first)

    def has_begun(self, prompt: Sequence[int]) -> bool:
        """Return whether the model reasons after this prompt.

        A parser may take whatever is not its opening mark for the end, and the token of the answer that it
        falls on would be free (minimax_m3, unless thinking is switched on).
        """
        parser = self._parser
        no_mark = parser.model_tokenizer.encode("a", add_special_tokens=False)[-1:]
        return bool(parser.is_reasoning_end(prompt)) or self._shortest_end(list(prompt), no_mark) > 1

    def implicit_ends(self) -> Sequence[int]:
        """Return the tokens that end reasoning as content; see matchers.reasoning.Reasoner."""
        known = getattr(self._parser, "reasoning_end_token_ids", ())
        return [token for token in known if (end := self._found([token])) is not None and end[1]]

    def _found(self, tokens: Sequence[int]) -> tuple[int, bool] | None:
        """Return where reasoning ends in `tokens`, and whether with content; None: the parser cannot tell."""
        parser = self._parser
        if not isinstance(parser, ParserEngineReasoningAdapter) or not parser.reasoning_end_token_ids:
            return None
        if minor.here().has_implicit_ends:
            end = parser.find_reasoning_end(tokens)
            return end.offset, end.implicit
        offset: int = parser.find_reasoning_end_offset(tokens)
        mark = parser._parser_engine._reasoning_end_token_id  # noqa: SLF001 - as later minors tell it
        return offset, offset < len(tokens) and tokens[offset] != mark

    def _shortest_end(self, before: list[int], tokens: list[int]) -> int:
        """Return how many tokens it takes to end reasoning, one more than there are if they do not."""
        # A parser answers for a whole text, of which the tokens are the end; a copy would cost each step.
        length = len(before)
        before.extend(tokens)
        shortest = len(tokens) + 1
        try:
            while tokens and self._parser.is_reasoning_end_streaming(before, tokens):
                shortest = len(tokens)
                before.pop()
                tokens.pop()
        finally:
            del before[length:]
        return shortest
