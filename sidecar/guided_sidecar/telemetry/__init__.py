"""Records of ranks and spans of vLLM in, OTLP out. Runs in the service process."""
