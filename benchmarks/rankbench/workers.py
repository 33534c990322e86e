"""What the benchmark asks of every worker, ours and upstream's: a window to be measured, and what it saw."""

import os
from typing import Any

from vllm.v1.worker.gpu_worker import Worker

from guided_contract import names
from rankbench import device


def extend() -> None:
    """Give every worker class the benchmark's questions."""

    def begin_window(self: Any, batch: int, steps: int, profile: str, method: str) -> None:
        self.model_runner.begin_window(batch, steps, profile, method)

    def window_report(self: Any) -> Any:
        return self.model_runner.report()

    Worker.rankbench_begin = begin_window
    Worker.rankbench_report = window_report
    if os.environ.get(names.ENV_CONFIG):
        device.watch()
