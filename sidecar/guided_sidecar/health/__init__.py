"""Whether this pod may get requests, and why not: hellos, heartbeats and a real guided request."""
