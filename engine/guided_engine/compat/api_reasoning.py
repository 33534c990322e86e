"""How the API server reads reasoning in guided answers; called by the entry `admission`."""

import functools
from collections.abc import Callable, Sequence
from typing import Any, Final

from guided_engine.admission.exchange import current

# On a parser: whether its prompt had ended the reasoning.
_ENDED: Final = "_guided_reasoning_ended"


def apply() -> None:
    """Have vLLM's parsers read a guided answer as the ranks constrained it."""
    from vllm.entrypoints.openai.chat_completion.protocol import (  # noqa: PLC0415 - see compat/__init__.py
        ChatCompletionRequest,
    )
    from vllm.parser.abstract_parser import DelegatingParser  # noqa: PLC0415 - as above

    ChatCompletionRequest.resolve_reasoning_ended = _hiding(ChatCompletionRequest.resolve_reasoning_ended)
    DelegatingParser.set_prompt_token_ids = _remembering(DelegatingParser.set_prompt_token_ids)
    DelegatingParser.extract_reasoning = _reading(DelegatingParser.extract_reasoning)


def _hiding(resolve: Callable[..., bool | None]) -> Callable[..., bool | None]:
    @functools.wraps(resolve)
    def hiding(self: Any, parser: Any, prompt_token_ids: list[int]) -> bool | None:
        """Have reasoning that is left out of the answer end as other reasoning does.

        vLLM takes it for over: its parser finds no end of it, and drops the answer with it.
        """
        return resolve(self.model_copy(update={"include_reasoning": True}), parser, prompt_token_ids)

    return hiding


def _remembering(set_prompt: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(set_prompt)
    def remembering(self: Any, prompt_token_ids: Sequence[int]) -> None:
        set_prompt(self, prompt_token_ids)
        exchange = current.get()
        if exchange is not None and exchange.kind is not None and self.reasoning_parser is not None:
            setattr(self, _ENDED, self.is_reasoning_end(list(prompt_token_ids)))

    return remembering


def _reading(extract: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(extract)
    def reading(self: Any, model_output: str, request: Any) -> Any:
        """Read an answer whose prompt had ended the reasoning as vLLM does in a stream: all is content."""
        return (None, model_output) if getattr(self, _ENDED, False) else extract(self, model_output, request)

    return reading
