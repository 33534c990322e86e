"""A reasoning parser for the tiny model, given to vLLM as `--reasoning-parser-plugin`.

A prompt that begins with the padding token has the model reason up to the first token that ends with a comma;
after any other prompt there is no reasoning. So guided requests of both kinds share an engine.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from vllm.reasoning import ReasoningParser, ReasoningParserManager

NAME = "comma"
PLUGIN = str(Path(__file__))
OPENS = "<|pad|>"


class CommaReasoningParser(ReasoningParser):
    def __init__(self, tokenizer: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(tokenizer, *args, **kwargs)
        self._opens = self.vocab[OPENS]
        self.ends = {token for text, token in self.vocab.items() if text.endswith(",")}

    @property
    def reasoning_start_str(self) -> str:
        """Return what a budget of thinking is counted from."""
        return OPENS

    @property
    def reasoning_end_str(self) -> str:
        """Return what is forced when the budget is used up."""
        return ","

    def is_reasoning_end(self, input_ids: Sequence[int]) -> bool:
        ids = list(input_ids)
        return self._opens not in ids or any(token in self.ends for token in ids[ids.index(self._opens) :])

    def is_reasoning_end_streaming(self, _input_ids: Sequence[int], delta_ids: Iterable[int]) -> bool:
        return any(token in self.ends for token in delta_ids)

    def extract_content_ids(self, input_ids: list[int]) -> list[int]:
        """Return what follows the reasoning; all of it where it does not end."""
        ends = [index for index, token in enumerate(input_ids) if token in self.ends]
        return input_ids[ends[0] + 1 :] if ends else []

    def extract_reasoning(self, model_output: str, request: Any) -> tuple[str | None, str | None]:  # noqa: ARG002 - the interface's
        reasoning, comma, content = model_output.partition(",")
        return reasoning + comma, content or None

    def extract_reasoning_streaming(self, *_args: Any, **_kwargs: Any) -> None:
        return None


ReasoningParserManager.register_module(NAME, module=CommaReasoningParser)
