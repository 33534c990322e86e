"""What is measured: cells, and what a model has in each."""

from typing import Final, NamedTuple

from guided_contract.config import LogitsProcessorConfig


class Cell(NamedTuple):
    """How many sequences there are, and the drafts of each."""

    batch: int
    drafts: int

    @property
    def name(self) -> str:
        """Return it as a variable has it."""
        return f"k{self.drafts}-b{self.batch}"


class Mode(NamedTuple):
    """What a model has; where no request has a processor, all are guided."""

    name: str
    processors: tuple[LogitsProcessorConfig, ...] = ()
    is_guided: bool = False


class Spent(NamedTuple):
    """Microseconds that something took, and this thread's CPU."""

    wall: float
    cpu: float


NONE: Final = Mode("no processors", is_guided=True)
UNUSED: Final = Mode("processors, none chosen", is_guided=True)
LOOP: Final = "a loop over rows"
