"""The arguments of one request on its way into vLLM's engine."""

import copy
from dataclasses import dataclass
from typing import Any

from guided_engine.admission.constraints import Constraint
from guided_engine.admission.gate import Admitted


@dataclass(frozen=True, slots=True)
class Call:
    """The arguments of one add_request: sampling parameters stand in one of two places."""

    prompt: Any
    params: Any

    @property
    def _in_prompt(self) -> bool:
        # An EngineCoreRequest, made by the caller: vLLM then ignores `params`.
        return hasattr(self.prompt, "sampling_params") and hasattr(self.prompt, "prompt_token_ids")

    @property
    def sampling(self) -> Any:
        """Its sampling or pooling parameters."""
        return self.prompt.sampling_params if self._in_prompt else self.params

    @property
    def samples(self) -> bool:
        """Whether this generates; pooling parameters have no constraint."""
        return hasattr(self.sampling, "structured_outputs")

    def with_arguments(self, admitted: Admitted) -> tuple[Any, Any]:
        """Return prompt and parameters with ours for the ranks in copies: callers share and reuse theirs."""
        ours = admitted.arguments
        if not ours:
            return self.prompt, self.params
        sampling = copy.copy(self.sampling)
        if admitted.lease is not None and sampling.structured_outputs is None:
            # Asked for by name: from here on as if sent with it.
            sampling.structured_outputs = _structured_outputs(admitted.lease.constraint)
        sampling.extra_args = {**(sampling.extra_args or {}), **ours}
        if not self._in_prompt:
            return self.prompt, sampling
        prompt = copy.copy(self.prompt)
        prompt.sampling_params = sampling
        return prompt, self.params


def _structured_outputs(constraint: Constraint) -> Any:
    from vllm.sampling_params import StructuredOutputsParams  # noqa: PLC0415 - see compat/__init__.py

    return StructuredOutputsParams(**{constraint.kind: constraint.spec})
