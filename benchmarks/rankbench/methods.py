"""What drafting costs on the virtual GPU, method by method, as Model Runner V2 of vLLM 0.32 has it.

A method passes over all tokens of the step first, which its KV cache needs, and then once more over a token
of each sequence for each draft token but the first. How often it does depends on where it reads the number
of draft tokens: in the configuration, or in what the scheduler asks for, which `disableAbove` lowers down
to 0. Whose passes follow the configuration pays for them at 0, too; what it proposed is dropped. With a draft
model that is upstream alone: ours follows the scheduler (guided_engine/compat/draft_model.py).
"""

from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import numpy.typing as npt

from rankbench.clock import Costs
from rankbench.speculation import ACCEPTANCE, Drafts


@dataclass(frozen=True, slots=True)
class Method:
    """Seconds are those of a pass over few tokens; `Costs.full_rows` says what few are.

    `acceptance` is the chance that a draft is right where those before it were.
    """

    first_s: float
    next_s: float = 0.0
    is_scheduled: Literal["never", "ours", "always"] = "never"  # whose passes the scheduler's number ends
    acceptance: float = ACCEPTANCE

    def draft_s(  # noqa: PLR0913 - all that it depends on
        self, costs: Costs, configured: int, asked_for: int, tokens: int, batch: int, *, is_ours: bool
    ) -> float:
        """Return what a step's drafting takes.

        Parameters
        ----------
        configured, asked_for
            Draft tokens of a sequence: `numTokens`, and what the scheduler asks for in this step.
        tokens, batch
            Of the step's forward pass, and its sequences.
        is_ours
            Whether the engine has the plugin.
        """
        follows = self.is_scheduled == "always" or (self.is_scheduled == "ours" and is_ours)
        count = asked_for if follows else configured
        nexts = max(0, count - 1)
        return costs.pass_s(self.first_s, tokens) + nexts * costs.pass_s(self.next_s, batch)


METHODS: Final = {
    # vllm/v1/worker/gpu/spec_decode/standalone_ar: `propose` reads its own num_speculative_steps.
    "draft": Method(first_s=0.8e-3, next_s=0.6e-3, is_scheduled="ours"),
    # target_dependent_ar: a layer and the logits; one layer of MTP is drafted by the same code.
    "eagle3": Method(first_s=0.5e-3, next_s=0.4e-3, is_scheduled="always"),
    # ngram: two kernels over the tokens that are there, for all draft tokens at once. 1.97 tokens a step of 4
    # is what benchmarks/prompt_lookup.py finds in JSON whose schema is in the prompt.
    "ngram": Method(first_s=0.1e-3, acceptance=0.53),
}


def drafts_by_method(documents: npt.NDArray[np.int64], count: int) -> dict[str, Drafts]:
    """Return each method's drafts of documents of [documents, tokens] int64; {}: there are none."""
    if not count:
        return {}
    return {name: Drafts.make(documents, count, method.acceptance) for name, method in METHODS.items()}
