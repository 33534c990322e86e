"""How far one compile is, its deadline, and why it was ended: one object that its flight owns.

The pool says when a worker gets it and when one dies of it; the last who waits ends it by `give_up` when it
leaves; all others read. Nothing of this travels in an exception.
"""

import dataclasses
import time
from collections.abc import Callable


@dataclasses.dataclass(slots=True)
class CompileProgress:
    """One compile's, over all of its attempts.

    Parameters
    ----------
    limit_s
        How long a worker may have it.
    clock
        Monotonic seconds.

    Attributes
    ----------
    deaths
        Workers that died of it.
    """

    limit_s: float
    clock: Callable[[], float] = time.monotonic
    deaths: int = 0
    _started: float | None = None
    _gave_up_late: bool | None = None  # None: somebody waits

    def start(self) -> None:
        """Note that a worker has it from now on."""
        self._started = self.clock()

    def queue(self) -> None:
        """Note that no worker has it."""
        self._started = None

    def ran_for(self, time_s: float) -> bool:
        """Return whether its worker has had it for so long by now; False where it waits for one."""
        return self._started is not None and self.clock() - self._started >= time_s

    def give_up(self, *, late: bool) -> None:
        """Note that nobody waits for it any more; `late`: the last who did ran out of time.

        How long its worker takes to end then changes nothing.
        """
        self._gave_up_late = late or self.ran_for(self.limit_s)

    @property
    def was_late(self) -> bool:
        """Whether it was ended for its time: its own, or that of the last who waited for it."""
        return self.ran_for(self.limit_s) if self._gave_up_late is None else self._gave_up_late
