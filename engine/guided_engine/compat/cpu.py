"""What vLLM's CPU build needs: async scheduling as asked, a quick start, kernels that keep their results."""

import os
from typing import Any, Final

from guided_contract.config import PodConfig
from guided_engine.ledger import LedgerEntry, PatchSkippedError


def keep_settings(_config: PodConfig) -> None:
    """Make the CPU platform leave `async_scheduling` as it was decided, and fork where that is safe.

    It spawns engine core and ranks so that each rank gets OpenMP settings of its own before it loads torch.
    Where ranks are bound to no CPU and have one thread each, there are none to give, and no thread pool for a
    fork to lose.
    """
    platform = _cpu_platform()
    original = platform.check_and_update_config.__func__

    def check_and_update_config(cls: Any, vllm_config: Any) -> None:
        asked_for = vllm_config.scheduler_config.async_scheduling
        original(cls, vllm_config)
        vllm_config.scheduler_config.async_scheduling = asked_for
        said = os.environ.get
        if said("VLLM_CPU_OMP_THREADS_BIND") == "nobind" and said("OMP_NUM_THREADS") == "1":
            os.environ["VLLM_WORKER_MULTIPROC_METHOD"] = "fork"

    platform.check_and_update_config = classmethod(check_and_update_config)


def mend_kernels(_config: PodConfig) -> None:
    """Make the rejection sampler's stand-ins take what they are given: other dtypes, and no row at all."""
    _cpu_platform()
    from vllm.utils import cpu_triton_utils  # noqa: PLC0415 - vLLM is imported only where it is changed
    from vllm.v1.sample.ops import topk_topp_sampler as sampler  # noqa: PLC0415 - as above

    # Looked up by name when a worker registers its kernels, right after it has called the plugins.
    cpu_triton_utils._expand_kernel_impl = expand  # noqa: SLF001 - the private name is the change
    original = sampler.apply_top_k_only

    def apply_top_k_only(logits: Any, k: Any) -> Any:
        return original(logits, k) if k.numel() else logits

    sampler.apply_top_k_only = apply_top_k_only


def expand(
    output: Any, input_val: Any, cu_num_tokens: Any, replace_from: int, replace_to: int, *_constants: Any
) -> None:
    """Write each request's value once per token of it, to `output` [num_tokens] of any dtype.

    `input_val` [batch] has a value per request, `cu_num_tokens` [batch] the running total of tokens; values
    equal to `replace_from` are written as `replace_to`.
    """
    counts = cu_num_tokens.diff(prepend=cu_num_tokens.new_zeros(1))
    values = input_val.masked_fill(input_val == replace_from, replace_to)
    output.copy_(values.repeat_interleave(counts, output_size=output.shape[0]))


def spare_generators(runner: Any) -> None:
    """Keep a V1 runner from drawing, for a row whose token is discarded, from its request's generator.

    Upstream gives back what was drawn by the generator's offset, which a CPU's has not: it raises, and the
    engine ends.
    """
    original = runner.sample_tokens

    def sample_tokens(*args: Any, **kwargs: Any) -> Any:
        generators = runner.input_batch.generators  # vLLM makes another batch when it knows its cache
        discarded = runner.discard_request_mask.np
        unused = {row: generators.pop(row) for row in list(generators) if discarded[row]}
        output = original(*args, **kwargs)
        generators.update(unused)
        return output

    runner.sample_tokens = sample_tokens


def _cpu_platform() -> Any:
    """Return vLLM's CPU platform class.

    Raises
    ------
    PatchSkippedError
        This engine runs on another platform.
    """
    from vllm.platforms import current_platform  # noqa: PLC0415 - as above

    if not current_platform.is_cpu():
        raise PatchSkippedError("the engine does not run on a CPU")
    return type(current_platform)


ENTRIES: Final = (
    LedgerEntry(
        name="cpu-settings",
        why="the CPU platform turns async scheduling off, also where it is asked for, and spawns engine core "
        "and ranks, which then import vLLM anew: 10 s of CPU each, most of what starting a small model takes",
        goes_when="the CPU platform honours --async-scheduling and VLLM_WORKER_MULTIPROC_METHOD",
        apply=keep_settings,
        upstream="docs/upstream/cpu-settings-*.patch",
        ranks_only=False,
    ),
    LedgerEntry(
        name="cpu-kernels",
        why="the stand-in for expand_kernel writes to a temporary int64 copy of other dtypes and drops it: "
        "a draft model with async scheduling samples with the wrong temperatures; with top_k, a speculating "
        "step without a draft asks for the largest of no k, so the engine core dies",
        goes_when="_expand_kernel_impl keeps all dtypes, and apply_top_k_only takes no rows",
        apply=mend_kernels,
        upstream="docs/upstream/cpu-kernels-*.patch",
        ranks_only=False,
    ),
    LedgerEntry(
        name="cpu-seeds-in-chunks",
        why="in a step that takes a part of a seeded request's prompt, Model Runner V1 sets back its "
        "generator's offset, which a CPU's generator has not, so the engine core dies",
        goes_when="V1 draws nothing for discarded tokens from their requests' generators, or is gone",
        apply=lambda _config: _cpu_platform(),
        upstream="docs/upstream/cpu-seeds-in-chunks.patch",
        ranks_only=False,
    ),
)
