"""For authors of logits processors: a rank in memory, without vLLM, and the rules that factories keep."""

from guided_engine.testing.conformance import check_factory
from guided_engine.testing.harness import Harness, Sequence

__all__ = ["Harness", "Sequence", "check_factory"]
