"""What a GuidedModel is called by all that follows it, and how long one that fails waits."""

from typing import Final, NamedTuple

_FIRST_S: Final = 0.5
# A fault that lasts is looked at once a minute: soon enough to recover by itself, too seldom to load anybody.
_LAST_S: Final = 60.0


class Key(NamedTuple):
    """Namespace and name of a GuidedModel."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


def backoff_s(failures: int) -> float:
    """Return how long a key waits after `failures` >= 1 failures in a row: doubling, up to a minute."""
    return float(min(_FIRST_S * 2.0 ** min(failures - 1, 30), _LAST_S))
