"""The operator at scale, on a real API server, beside a controller on controller-runtime."""
