"""Matchers of one rank, in a process beside it: the rank sends tokens and reads masks from shared memory."""
