"""What operator, engine plugin and sidecar agree on: names, configuration, errors and wire messages.

Depends on msgspec alone, so that each of the three can import it in its own environment.
"""
