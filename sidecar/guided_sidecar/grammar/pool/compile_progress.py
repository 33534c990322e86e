"""How far one compile is, what is said of one that is late, and why it was ended: its flight owns it.

The pool says when a worker gets it and when one dies of it; the last who waits says why it ended it; all
others read. Nothing of this travels in an exception.
"""

import dataclasses
import time
from collections.abc import Callable
from typing import Final

from guided_contract.errors import ErrorCode, GuidedError
from guided_sidecar.grammar.worker_messages import Compiled

# A compile that ran out of time is to blame for it only if a worker had it for so much of the limit.
_SHARE_WITH_A_WORKER: Final = 0.5
_RETRY_AFTER_S: Final = 1


@dataclasses.dataclass(slots=True)
class CompileProgress:
    """One compile's, over all of its attempts.

    Parameters
    ----------
    limit_s
        How long a worker may have it.
    clock
        Monotonic seconds.
    tell
        Called with what ranks may load before it is proven; again where another worker begins anew, or
        another backend takes the grammar.

    Attributes
    ----------
    deaths
        Workers that died of it.
    refusal
        Why a library refused it whose turn it was before the one that has it now.
    ended
        What was said to the last who waited, whose time was over; None: it left, or waits.
    """

    limit_s: float
    clock: Callable[[], float] = time.monotonic
    tell: Callable[[Compiled], None] = lambda _message: None
    deaths: int = 0
    refusal: GuidedError | None = None
    ended: GuidedError | None = None
    _started: float | None = None

    def start(self) -> None:
        """Note that a worker has it from now on."""
        self._started = self.clock()
        self.refusal = None

    def queue(self) -> None:
        """Note that no worker has it."""
        self._started = None

    def too_late(self, limit_s: float) -> GuidedError:
        """Return what is said of it where it was not done in a time limit."""
        if self.ended is not None:  # its worker may take a while to be gone
            return self.ended
        limit = f"{limit_s:g} s"
        if self._started is None or self.clock() - self._started < _SHARE_WITH_A_WORKER * limit_s:
            crashed = "a grammar worker crashed; its replacement could not finish within"
            why = f"{crashed if self.deaths else 'all grammar workers were busy for'} {limit}"
            return GuidedError(ErrorCode.GRAMMAR_SERVICE_UNAVAILABLE, why, retry_after_s=_RETRY_AFTER_S)
        message = f"the grammar did not compile within {limit}"
        if (first := self.refusal) is None:
            return GuidedError(ErrorCode.GRAMMAR_COMPILE_TIMEOUT, message)
        said = f"{first.message}; with the other library {message}"
        return GuidedError(first.code, said, path=first.path)
