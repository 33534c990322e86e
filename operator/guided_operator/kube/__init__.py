"""The Kubernetes API as the operator uses it: requests, watches, the work queue, the leader lease.

Knows no GuidedModel.
"""
