"""Grammar workers as the service sees them: queue, start, use, kill and replace.

Runs in the service process.
"""
