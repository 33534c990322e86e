"""How often grammar workers may die by themselves before new grammars are refused for a while.

Counted are deaths that nobody ordered and no grammar explains: kills from outside, a template that fails. If
deaths in a compile counted, one client's schemas could spend the budget of all.
"""

import collections
import time
from collections.abc import Callable

from guided_contract.config import RestartConfig


class RestartBudget:
    """Deaths within the last `reset_after_s`, and what follows from their number.

    A budget that is spent stays so until there was no death for `reset_after_s`; then it is whole again.
    `clock` tells monotonic seconds.
    """

    def __init__(self, config: RestartConfig, clock: Callable[[], float] = time.monotonic) -> None:
        self._config = config
        self._clock = clock
        self._deaths: collections.deque[float] = collections.deque(maxlen=config.max_attempts)
        self._in_a_row = 0

    def record_death(self) -> None:
        """Count a death that nobody ordered."""
        self._deaths.append(self._clock())
        self._in_a_row += 1

    def record_success(self) -> None:
        """Note that a worker did its job: the next death is answered at once again."""
        self._in_a_row = 0

    def delay_s(self) -> float:
        """Return how long to wait before the next start: 0 after none, then doubling from the base delay."""
        if not self._in_a_row:
            return 0.0
        doubled = self._config.base_delay_s * 2.0 ** min(self._in_a_row - 1, 32)
        return min(doubled, self._config.max_delay_s)

    def exhausted_for_s(self) -> float:
        """Return the seconds until workers are started again; 0 while there is budget left."""
        deaths, now, window_s = self._deaths, self._clock(), self._config.reset_after_s
        if deaths and now - deaths[-1] >= window_s:
            deaths.clear()
            self._in_a_row = 0
        is_spent = len(deaths) == deaths.maxlen and deaths[-1] - deaths[0] < window_s
        return deaths[-1] + window_s - now if is_spent else 0.0
