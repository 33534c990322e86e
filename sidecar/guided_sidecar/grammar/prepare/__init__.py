"""From a Prepare message to its answer: key, caches, one compile for all who wait, leases.

Runs in the service process.
"""
