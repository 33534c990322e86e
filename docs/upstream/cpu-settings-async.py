"""An explicit --async-scheduling on a CPU."""

import sys

from vllm.config import SchedulerConfig, VllmConfig


def main() -> str:
    asked = SchedulerConfig.default_factory(async_scheduling=True)
    if not VllmConfig(scheduler_config=asked).scheduler_config.async_scheduling:
        return "async scheduling was asked for, and is off"
    return ""


if __name__ == "__main__":
    sys.exit(main() or 0)
