"""Model Runner V2 on a CPU, for tests: Triton's interpreter as the cpu backend that vLLM's build asks for.

Put this folder on PYTHONPATH, and set VLLM_USE_V2_MODEL_RUNNER=1. The kernels then run in numpy, slowly.
"""

import os
from typing import Any

if os.environ.get("VLLM_USE_V2_MODEL_RUNNER") == "1":
    os.environ["TRITON_INTERPRET"] = "1"

    from triton.backends import Backend, backends
    from triton.backends.compiler import GPUTarget

    class InterpreterDriver:
        """What Triton asks of a driver before it interprets."""

        @staticmethod
        def is_active() -> bool:
            return True

        def get_current_target(self) -> Any:
            return GPUTarget("cpu", 0, 32)

        def get_current_device(self) -> int:
            return 0

    backends["cpu"] = Backend(compiler=None, driver=InterpreterDriver)
