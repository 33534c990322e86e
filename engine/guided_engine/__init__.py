"""What runs inside vLLM's processes: launcher, API server, engine core and ranks."""
