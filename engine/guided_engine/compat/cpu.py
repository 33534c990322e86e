"""What vLLM's CPU build needs: async scheduling as asked for, and a kernel that keeps its result."""

from typing import Any, Final

from guided_contract.config import PodConfig
from guided_engine.compat.ledger import LedgerEntry, PatchSkippedError


def keep_async_scheduling(_config: PodConfig) -> None:
    """Make the CPU platform leave `async_scheduling` as it was decided for every platform."""
    platform = _cpu_platform()
    original = platform.check_and_update_config.__func__

    def check_and_update_config(cls: Any, vllm_config: Any) -> None:
        asked_for = vllm_config.scheduler_config.async_scheduling
        original(cls, vllm_config)
        vllm_config.scheduler_config.async_scheduling = asked_for

    platform.check_and_update_config = classmethod(check_and_update_config)


def keep_expanded_values(_config: PodConfig) -> None:
    """Make the CPU stand-in of the rejection sampler's expand kernel write to the tensor it was given."""
    _cpu_platform()
    from vllm.utils import cpu_triton_utils  # noqa: PLC0415 - vLLM is imported only where it is changed

    # Looked up by name when a worker registers its kernels, right after it has called the plugins.
    cpu_triton_utils._expand_kernel_impl = expand  # noqa: SLF001 - the private name is the change


def expand(  # noqa: PLR0913, PLR0917 - the kernel's own signature
    output: Any,
    input_val: Any,
    cu_num_tokens: Any,
    replace_from: int,
    replace_to: int,
    MAX_NUM_TOKENS: int | None = None,  # noqa: ARG001, N803 - a constant of the Triton kernel, unused here
) -> None:
    """Write each request's value once per token of it.

    Parameters
    ----------
    output
        [num_tokens], any dtype; written in place.
    input_val
        [batch] one value per request.
    cu_num_tokens
        [batch] running total of tokens.
    replace_from, replace_to
        Values equal to the first are written as the second.
    """
    counts = cu_num_tokens.diff(prepend=cu_num_tokens.new_zeros(1)).long()
    values = input_val.masked_fill(input_val == replace_from, replace_to)
    output.copy_(values.repeat_interleave(counts, output_size=output.shape[0]))


def _cpu_platform() -> Any:
    """Return vLLM's CPU platform class.

    Raises
    ------
    PatchSkippedError
        This engine runs on another platform.
    """
    from vllm.platforms import current_platform  # noqa: PLC0415 - see above

    if not current_platform.is_cpu():
        raise PatchSkippedError("the engine does not run on a CPU")
    return type(current_platform)


ENTRIES: Final = (
    LedgerEntry(
        name="cpu-async-scheduling",
        why="the CPU platform turns async scheduling off, also where it is asked for",
        upstream="vllm/platforms/cpu.py: 'async scheduling is not required on CPU'",
        goes_when="the CPU platform honours --async-scheduling",
        apply=keep_async_scheduling,
    ),
    LedgerEntry(
        name="cpu-expand-kernel",
        why="the stand-in for expand_kernel writes to a temporary int64 copy of other dtypes and drops it, "
        "so a draft model with async scheduling samples with the wrong temperatures",
        upstream="vllm/utils/cpu_triton_utils.py: _expand_kernel_impl",
        goes_when="_expand_kernel_impl copies its result back, as its neighbours do",
        apply=keep_expanded_values,
    ),
)
