"""Revisions and rollovers. Pure."""
