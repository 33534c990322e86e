"""Revisions, rollovers and the number of replicas. Pure."""
