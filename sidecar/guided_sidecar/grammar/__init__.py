"""Grammars: limits, worker processes that compile and prove them, and their way to the ranks."""
