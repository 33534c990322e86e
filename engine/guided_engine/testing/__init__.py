"""For authors of logits processors: a rank in memory, without vLLM."""

from guided_engine.testing.harness import Harness, Sequence

__all__ = ["Harness", "Sequence"]
