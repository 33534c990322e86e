"""What users of vLLM have, as far as it needs no vLLM: told by its methods alone."""

from typing import Any


class Target:
    """As an AdapterLogitsProcessor: forbids all but the request's target."""

    def __init__(self, vllm_config: Any, device: Any, is_pin_memory: Any) -> None:
        pass

    @classmethod
    def validate_params(cls, sampling_params: Any) -> None:
        if not 0 <= sampling_params.target < 128:
            raise ValueError("a target is a token id")

    def is_argmax_invariant(self) -> bool:
        return False

    def new_req_logits_processor(self, params: Any) -> Any:
        def only(_output_ids: list[int], logits: Any) -> Any:
            logits[: params.target] = float("-inf")
            logits[params.target + 1 :] = float("-inf")
            return logits

        return only


def unchanged(_output_ids: list[int], logits: Any) -> Any:
    return logits
