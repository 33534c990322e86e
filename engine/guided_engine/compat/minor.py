"""What differs between the vLLM minors that are known, as facts; of another one nothing is guessed.

docs/new-vllm.md has the steps for another minor; `make seams` prints what changed in it.
"""

from functools import cache
from typing import Final, NamedTuple

from guided_contract.compatibility import minor_of
from guided_engine.versions import installed_vllm


class Minor(NamedTuple):
    """Facts of one minor.

    Attributes
    ----------
    has_fixed_mask_rows
        A request owns 1 + num_speculative_tokens rows of a grammar bitmask, used or not; else those it uses.
    has_acceptable_drafts
        GrammarOutput says how many leading drafts a grammar allows.
    has_request_errors
        Scheduler.grammar_compile_error_reqs has an error for each request, which EngineCoreOutput.error
        carries, and which wins over any other; else it is a set.
    has_full_vocabulary_compiler
        XgrammarBackend has a compiler that knows special tokens, beside one that does not.
    has_implicit_ends
        A parser says whether the token that ends reasoning is content itself.
    resolves_reasoning
        A chat request says itself whether its prompt ended the reasoning, and parsers are told the prompt.
    has_scheduled_passes
        A draft model of Model Runner V2 is told how many draft tokens the scheduler asked for.
    has_default_arguments
        Of a tool without parameters one function says what its arguments are, for every way to force a call.
    skips_drafts
        SchedulerOutput says of a step whose drafts nobody could use that it proposes none.
    """

    has_fixed_mask_rows: bool
    has_acceptable_drafts: bool
    has_request_errors: bool
    has_full_vocabulary_compiler: bool
    has_implicit_ends: bool
    resolves_reasoning: bool
    has_scheduled_passes: bool
    has_default_arguments: bool
    skips_drafts: bool


_0_32: Final = Minor(
    has_fixed_mask_rows=False,
    has_acceptable_drafts=True,
    has_request_errors=False,
    has_full_vocabulary_compiler=False,
    has_implicit_ends=True,
    resolves_reasoning=True,
    has_scheduled_passes=True,
    has_default_arguments=True,
    skips_drafts=False,
)
MINORS: Final = {
    "0.31": _0_32._replace(
        has_acceptable_drafts=False,
        has_implicit_ends=False,
        resolves_reasoning=False,
        has_scheduled_passes=False,
        has_default_arguments=False,
    ),
    "0.32": _0_32,
    "0.33": _0_32._replace(
        has_fixed_mask_rows=True,
        has_request_errors=True,
        has_full_vocabulary_compiler=True,
        skips_drafts=True,
    ),
}


@cache
def here() -> Minor:
    """Return the facts of the installed vLLM.

    Raises
    ------
    KeyError
        Its minor is not known; nothing of vLLM is to be changed.
    """
    version = installed_vllm() or ""
    if minor_of(version) not in MINORS:
        raise KeyError(f"vLLM {version} is not known; known are the releases of {', '.join(MINORS)}")
    return MINORS[minor_of(version)]


def mask_rows(num_speculative_tokens: int) -> int:
    """Return how many rows of a bitmask each sequence has, used or not; 0: as many as it uses."""
    return 1 + num_speculative_tokens if here().has_fixed_mask_rows else 0
