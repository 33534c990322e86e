"""Whether the pod is ready, and why not: probes, the status page, metrics. Runs in the service process."""
