"""What a GuidedModel is called by all that follows it, and how long one that fails waits."""

from dataclasses import dataclass
from typing import Final, NamedTuple

FIRST_BACKOFF_S: Final = 0.5
# A fault that lasts is looked at once a minute: soon enough to recover by itself, too seldom to load anybody.
LAST_BACKOFF_S: Final = 60.0


class Key(NamedTuple):
    """Namespace and name of a GuidedModel."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class Backoff:
    """How long a key waits after its nth failure in a row."""

    first_s: float = FIRST_BACKOFF_S
    last_s: float = LAST_BACKOFF_S

    def delay_s(self, failures: int) -> float:
        """Return the delay after `failures` >= 1 failures: doubling, up to `last_s`."""
        return float(min(self.first_s * 2.0 ** min(failures - 1, 30), self.last_s))
