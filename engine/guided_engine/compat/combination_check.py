"""What a rank knows of its engine, read from vLLM's own configuration, and what the table refuses of it."""

from collections.abc import Collection
from typing import Any, Final

from vllm.platforms import current_platform

from guided_contract.combinations.row import METHODS, NGRAM_ON_CPU, Facts
from guided_contract.combinations.table import refusals
from guided_contract.config import PodConfig
from guided_engine.processors.interface import DenseFactory, ProcessorFactory

_METHODS: Final[dict[str, Any]] = {NGRAM_ON_CPU: "NGram", **{name: word for word, name in METHODS.items()}}


class RefusedError(Exception):
    """The table refuses this engine; the message says what to set instead."""


def check(vllm_config: Any, config: PodConfig, factories: Collection[type[ProcessorFactory[Any]]]) -> None:
    """Refuse an engine whose settings do not go together.

    Raises
    ------
    RefusedError
        Which do not.
    """
    refused = [*refusals(facts_of(vllm_config, config, factories), "Plugin")]
    if refused:
        raise RefusedError("; ".join(f"spec.{row.field}: {row.message}" for row in refused))


def facts_of(
    vllm_config: Any, config: PodConfig, factories: Collection[type[ProcessorFactory[Any]]]
) -> Facts:
    """Return what is known here; which scheduling was asked for is not."""
    parallel, speculative = vllm_config.parallel_config, vllm_config.speculative_config
    asked: dict[str, Any] = {}
    if speculative is not None:
        asked = {
            "method": _METHODS.get(speculative.method),
            "by_batch": speculative.num_speculative_tokens_per_batch_size is not None,
            "probabilistic": speculative.draft_sample_method == "probabilistic",
            "block": speculative.rejection_sample_method == "block",
            "adaptive": speculative.enable_adaptive_verification,
        }
    return Facts(
        **asked,
        device="CPU" if current_platform.is_cpu() else "CUDA" if current_platform.is_cuda() else "Other",
        runner="V2" if vllm_config.use_v2_model_runner else "V1",
        staged=parallel.pipeline_parallel_size > 1,
        replicated=parallel.data_parallel_size > 1,
        split=parallel.tensor_parallel_size > 1,
        on_ranks=config.guided_decoding.placement == "Rank",
        processors=bool(config.logits_processors),
        dense=any(issubclass(factory, DenseFactory) for factory in factories),
        undrafted=not all(factory.supports_speculation for factory in factories),
        foreign=False,  # such a class makes no factory: processors.adapters refuses it by the same row
        lora=vllm_config.lora_config is not None,
        multimodal=vllm_config.model_config.is_multimodal_model,
        reasoning_plugin=bool(vllm_config.structured_outputs_config.reasoning_parser_plugin),
        sharded=bool(parallel.enable_batch_sharded_sampling),
        eager=vllm_config.model_config.enforce_eager,
        dbo=parallel.enable_dbo,
    )
