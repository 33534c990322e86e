"""The stream socket of ranks and API servers: frames, sessions, and the service that they ask.

Runs in the service process.
"""
