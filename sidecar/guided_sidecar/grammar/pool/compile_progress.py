"""How far one compile is, its deadline, and why it was ended: one object that its flight owns.

The pool says when a worker gets it, what that has compiled, when it has it no longer and when one dies of it;
the last who waits ends it by `give_up` when it leaves; all others read. Nothing of this travels in an
exception.
"""

import dataclasses
import time
from collections.abc import Callable
from typing import Final

from guided_contract.errors import ErrorCode, GuidedError
from guided_sidecar.grammar.worker_messages import Compiled

# A compile that ran out of time is to blame for it only if a worker had it for so much of the limit, and used
# so much of the limit as CPU time: on a busy machine a worker may wait for a CPU longer than it runs.
_SHARE_WITH_A_WORKER: Final = 0.5
_SHARE_OF_CPU: Final = 0.1
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
    """

    limit_s: float
    clock: Callable[[], float] = time.monotonic
    tell: Callable[[Compiled], None] = lambda _message: None
    deaths: int = 0
    refusal: GuidedError | None = None
    _started: float | None = None
    _worker_cpu_s: Callable[[], float] = lambda: 0.0
    _cpu_before_s: float = 0.0
    _cpu_s: float | None = None  # None: its worker goes on
    _given_up: float | None = None  # when; None: somebody waits
    _late_after_s: float | None = None

    def start(self, cpu_s: Callable[[], float]) -> None:
        """Note that a worker has it from now on; `cpu_s` reads the CPU seconds of that worker."""
        self._started = self.clock()
        self.refusal = None
        self._worker_cpu_s, self._cpu_before_s, self._cpu_s = cpu_s, cpu_s(), None

    def stop(self) -> None:
        """Note that its worker ends, which takes what is known of it away."""
        if self._given_up is None:
            self._cpu_s = self.cpu_s

    def queue(self) -> None:
        """Note that no worker has it."""
        self._started = None

    @property
    def cpu_s(self) -> float:
        """CPU seconds that the worker has used which has it, or had it last."""
        return self._worker_cpu_s() - self._cpu_before_s if self._cpu_s is None else self._cpu_s

    def ran_for(self, time_s: float) -> bool:
        """Return whether its worker has had it for so long by now; False where it waits for one."""
        now = self.clock() if self._given_up is None else self._given_up
        return self._started is not None and now - self._started >= time_s

    def excuse(self, limit_s: float) -> str:
        """Return why it could not be done in a time limit without being to blame; "": it is to blame."""
        limit = f"{limit_s:g} s"
        if not self.ran_for(_SHARE_WITH_A_WORKER * limit_s):
            crashed = "a grammar worker crashed; its replacement could not finish within"
            return f"{crashed if self.deaths else 'all grammar workers were busy for'} {limit}"
        if (used_s := self.cpu_s) < _SHARE_OF_CPU * limit_s:
            return f"the grammar worker was given {used_s:.2f} s of CPU time within {limit}"
        return ""

    def too_late(self, limit_s: float) -> GuidedError:
        """Return what is said of it where it was not done in a time limit."""
        if excuse := self.excuse(limit_s):
            return GuidedError(ErrorCode.GRAMMAR_SERVICE_UNAVAILABLE, excuse, retry_after_s=_RETRY_AFTER_S)
        message = f"the grammar did not compile within {limit_s:g} s"
        if (first := self.refusal) is None:
            return GuidedError(ErrorCode.GRAMMAR_COMPILE_TIMEOUT, message)
        said = f"{first.message}; with the other library {message}"
        return GuidedError(first.code, said, path=first.path)

    def give_up(self, late_after_s: float | None) -> None:
        """Note that nobody waits for it any more; what is said of it is said of this moment.

        Parameters
        ----------
        late_after_s
            The limit of the last who waited, where that is over; None: it left.
        """
        self._cpu_s, self._given_up, self._late_after_s = self.cpu_s, self.clock(), late_after_s

    @property
    def late_after_s(self) -> float | None:
        """The limit that it was ended for, its own or that of the last who waited for it; None: for none."""
        return self.limit_s if self.ran_for(self.limit_s) else self._late_after_s
