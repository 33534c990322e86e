"""Logits processors as users of vLLM have them: functions, AdapterLogitsProcessors, and what is neither."""

from typing import Any

import torch
from vllm.v1.sample.logits_processor import AdapterLogitsProcessor, MinPLogitsProcessor
from vllm.v1.worker.gpu.sample.logits_processor import LogitsProcessor


def no_token_twice(output_ids: list[int], logits: torch.Tensor) -> torch.Tensor:
    """Change the row in place."""
    logits[output_ids] -= 3.0
    return logits


def like_the_prompt(prompt_ids: list[int], output_ids: list[int], logits: torch.Tensor) -> torch.Tensor:
    """Return another tensor, of another type."""
    row = logits.double()
    row[prompt_ids + output_ids[-1:]] += 1.0
    return row


class KeepsOne:
    """Forbids all but one token, which it reads on the host, as vLLM's own example does."""

    def __init__(self, token: int) -> None:
        self._token = token

    def __call__(self, output_ids: list[int], logits: torch.Tensor) -> torch.Tensor:  # noqa: ARG002 - vLLM's
        kept = logits[self._token].item()
        logits[:] = float("-inf")
        logits[self._token] = kept
        return logits


class TargetToken(AdapterLogitsProcessor):
    """As vLLM's example: for requests with `target_token`."""

    def __init__(self, vllm_config: Any, device: torch.device, is_pin_memory: bool) -> None:  # noqa: FBT001
        super().__init__(vllm_config, device, is_pin_memory)
        self.made_with = (vllm_config, device, is_pin_memory)

    @classmethod
    def validate_params(cls, sampling_params: Any) -> None:
        token = (sampling_params.extra_args or {}).get("target_token")
        if token is not None and not isinstance(token, int):
            raise ValueError(f"target_token must be an integer, and is {token!r}")

    def is_argmax_invariant(self) -> bool:
        return False

    def new_req_logits_processor(self, params: Any) -> Any:
        token = (params.extra_args or {}).get("target_token")
        return None if token is None else KeepsOne(token)


class WithPrompt(AdapterLogitsProcessor):
    """For each request the same function, of its arguments alone."""

    supports_speculation = True

    def is_argmax_invariant(self) -> bool:
        return False

    def new_req_logits_processor(self, params: Any) -> Any:  # noqa: ARG002 - vLLM's
        return like_the_prompt


class Sharpens(WithPrompt):
    """Leaves the likeliest token where it is."""

    def is_argmax_invariant(self) -> bool:
        return True

    def new_req_logits_processor(self, params: Any) -> Any:  # noqa: ARG002 - vLLM's
        return lambda _output, logits: logits * 2


class Raises(WithPrompt):
    """Fails once a sequence has two tokens."""

    def new_req_logits_processor(self, params: Any) -> Any:  # noqa: ARG002 - vLLM's
        def function(output_ids: list[int], logits: torch.Tensor) -> torch.Tensor:
            if len(output_ids) == 2:
                raise RuntimeError("two")
            return logits

        return function


class OfV2(LogitsProcessor):
    """vLLM's V2 interface."""

    def apply(self, logits: torch.Tensor, ctx: Any) -> torch.Tensor:  # noqa: ARG002 - vLLM's
        return logits


OfV1 = MinPLogitsProcessor
Neither = KeepsOne
a_number = 3
