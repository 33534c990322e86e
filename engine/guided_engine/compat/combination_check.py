"""What the table leaves to a rank to refuse, by vLLM's own configuration and the processors' classes."""

from collections.abc import Collection
from typing import Any, Final

from vllm.platforms import current_platform

from guided_contract.combinations.row import METHODS, NGRAM_ON_CPU, Facts
from guided_contract.combinations.table import that_hold
from guided_contract.compatibility import minor_of
from guided_engine.processors.interface import DenseFactory, ProcessorFactory
from guided_engine.versions import installed_vllm

_METHODS: Final[dict[str, Any]] = {NGRAM_ON_CPU: "NGram", **{name: word for word, name in METHODS.items()}}


class RefusedError(Exception):
    """The table refuses this engine; the message says what to set instead."""


def check(vllm_config: Any, factories: Collection[type[ProcessorFactory[Any]]]) -> None:
    """Refuse an engine whose settings do not go together.

    Raises
    ------
    RefusedError
        Which do not.
    """
    found = facts_of(vllm_config, factories)
    refused = [*that_hold(found, "operator refuses", "plugin refuses")]
    if refused:
        raise RefusedError("; ".join(f"spec.{row.field}: {row.message}" for row in refused))


def facts_of(vllm_config: Any, factories: Collection[type[ProcessorFactory[Any]]]) -> Facts:
    """Return what the plugin's rows ask for, and that of the operator which a pod alone decides."""
    speculative = vllm_config.speculative_config
    asked: dict[str, Any] = {}
    if speculative is not None:
        asked = {
            "method": _METHODS.get(speculative.method),
            "block": speculative.rejection_sample_method == "block",
            "adaptive": speculative.enable_adaptive_verification,
        }
    return Facts(
        **asked,
        minor=minor_of(installed_vllm() or ""),
        device="CPU" if current_platform.is_cpu() else "CUDA" if current_platform.is_cuda() else "Other",
        runner="V2" if vllm_config.use_v2_model_runner else "V1",
        dense=any(issubclass(factory, DenseFactory) for factory in factories),
        undrafted=not all(factory.supports_speculation for factory in factories),
    )
