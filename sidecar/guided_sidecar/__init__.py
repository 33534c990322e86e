"""The process beside vLLM: grammar workers, health and telemetry."""
