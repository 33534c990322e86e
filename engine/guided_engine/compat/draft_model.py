"""A draft model that runs once for each draft token of a step; vLLM's own runs as often as is configured."""

from typing import Any, Final

from guided_contract.config import PodConfig
from guided_engine.compat import minor
from guided_engine.ledger import LedgerEntry, PatchSkippedError


def follow_steps(runner: Any) -> None:
    """Make a V2 runner's draft model leave out the passes whose draft tokens the scheduler did not ask for.

    Its first pass stays at 0 draft tokens, too: that one goes over every token of the step and the token that
    was sampled, and so keeps the draft model's KV cache whole. What later passes write is written anew by the
    next step's first, for any token that is accepted, so no step misses a pass that was left out.
    """
    speculator = getattr(runner, "speculator", None)
    if speculator is None or not minor.here().has_scheduled_passes:
        return
    from vllm.v1.worker.gpu.spec_decode.standalone_ar.speculator import (  # noqa: PLC0415 - V2's alone
        StandaloneARSpeculator,
    )

    if not isinstance(speculator, StandaloneARSpeculator):
        return
    propose, configured = speculator.propose, speculator.num_speculative_steps

    def proposed(
        input_batch: Any, *arguments: Any, num_speculative_tokens: int | None = None, **options: Any
    ) -> Any:
        asked_for = configured if num_speculative_tokens is None else num_speculative_tokens
        speculator.num_speculative_steps = max(asked_for, 1)
        try:
            propose(input_batch, *arguments, num_speculative_tokens=num_speculative_tokens, **options)
        finally:
            speculator.num_speculative_steps = configured
        # All columns: the runner writes -1 into those that were not asked for.
        return speculator.draft_tokens[: input_batch.num_reqs]

    speculator.propose = proposed


def _told_by_the_scheduler(_config: PodConfig) -> None:
    """Skip the entry where a draft model is not told the number; else the rank makes the change."""
    if not minor.here().has_scheduled_passes:
        raise PatchSkippedError("this vLLM tells a draft model of Model Runner V2 no number of draft tokens")


ENTRIES: Final = (
    LedgerEntry(
        name="draft-model-passes",
        why="Model Runner V2's draft model makes all its passes also where the scheduler asks for fewer "
        "draft tokens, or for none, and their proposals are dropped: disableAbove and numTokens Auto save "
        "nothing of them",
        goes_when="StandaloneARSpeculator.propose reads num_speculative_tokens, as EAGLE's does",
        apply=_told_by_the_scheduler,
        ranks_only=False,
    ),
)
