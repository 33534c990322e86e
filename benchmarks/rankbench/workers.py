"""What the benchmark asks of every worker, ours and upstream's: a window to be measured, and what it saw."""

import os
from typing import Any

from vllm.v1.worker.gpu_worker import Worker

from guided_contract import names
from rankbench import device


def extend() -> None:
    """Give every worker class the benchmark's questions and the count of masks."""
    original = Worker.sample_tokens

    def sample_tokens(self: Any, grammar_output: Any) -> Any:
        if grammar_output is not None:
            self.model_runner.count_shipped(grammar_output.grammar_bitmask.nbytes)
        return original(self, grammar_output)

    def begin_window(self: Any, batch: int, steps: int, profile: str, method: str) -> None:
        self.model_runner.begin_window(batch, steps, profile, method)

    def window_report(self: Any) -> dict[str, Any]:
        made: dict[str, Any] = self.model_runner.report()
        return made

    Worker.sample_tokens = sample_tokens
    Worker.rankbench_begin = begin_window
    Worker.rankbench_report = window_report
    if os.environ.get(names.ENV_CONFIG):
        device.watch()
