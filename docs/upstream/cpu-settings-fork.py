"""An explicit VLLM_WORKER_MULTIPROC_METHOD on a CPU."""

import os
import sys

os.environ["VLLM_WORKER_MULTIPROC_METHOD"] = "fork"

from vllm.config import VllmConfig
from vllm.utils.system_utils import get_mp_context


def main() -> str:
    VllmConfig()
    if (method := get_mp_context().get_start_method()) != "fork":
        return f"VLLM_WORKER_MULTIPROC_METHOD was fork, and vLLM would {method}"
    return ""


if __name__ == "__main__":
    sys.exit(main() or 0)
