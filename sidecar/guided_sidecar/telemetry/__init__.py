"""Spans and metrics: what the sidecar makes of the pod's records, and where it sends them."""
