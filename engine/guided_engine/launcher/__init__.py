"""The engine container's first process: starts vLLM, watches it, and leaves nothing of it behind."""
