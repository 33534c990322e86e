"""The worker class that the launcher names with --worker-cls."""

from guided_engine.compat.runner_worker import GuidedWorker

__all__ = ["GuidedWorker"]
