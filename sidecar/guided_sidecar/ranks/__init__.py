"""Where the ranks of a replica meet: they load a grammar together, and their digests are compared.

Runs in the service process.
"""
