"""Known refusals by key: a bad grammar is compiled once, one that kills workers less and less often.

What a library says about a grammar holds. That compiling it killed workers may have had other causes: it is
believed after so many times, for a while that doubles with every try that ends the same way. A rank that
found a grammar slow is believed at once.
"""

import collections
import dataclasses
import time
from collections.abc import Callable
from typing import Final

from guided_contract.errors import ErrorCode, GuidedError
from guided_contract.status import QuarantinedGrammar

# Workers that an error has killed. A crash was tried twice.
_KILLED: Final = {
    ErrorCode.GRAMMAR_COMPILE_TIMEOUT: 1,
    ErrorCode.GRAMMAR_COMPILE_CRASHED: 2,
    ErrorCode.GRAMMAR_COMPILE_MEMORY: 1,
}
_CERTAIN: Final = frozenset(
    {
        ErrorCode.GRAMMAR_INVALID,
        ErrorCode.GRAMMAR_TOO_LARGE,
        ErrorCode.GRAMMAR_UNSUPPORTED,
        ErrorCode.GRAMMAR_DEAD_END,
        ErrorCode.GRAMMAR_SLOW,
    }
)
_MOST_SHOWN: Final = 16


@dataclasses.dataclass(slots=True)
class _Case:
    """A grammar that has killed workers, or was slow on a rank.

    `until_s`: refused unseen until then, 0 where it never was.
    """

    error: GuidedError
    killed: int = 0
    terms: int = 0
    since_s: float = 0.0
    until_s: float = 0.0


class Quarantine:
    """Grammars that killed workers or were slow on a rank.

    Parameters
    ----------
    most_entries
        Upper bound; the entry whose last kill is oldest is evicted.
    after
        Number of killed workers from which a grammar is refused without compiling.
    first_s, most_s
        Seconds of the first refusal, and the maximum; each further kill doubles it. A grammar that has
        killed none for `most_s` is forgotten.
    clock
        Monotonic seconds.
    """

    def __init__(
        self,
        most_entries: int,
        after: int,
        first_s: float,
        most_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._most_entries = most_entries
        self._after = after
        self._first_s = first_s
        self._most_s = most_s
        self._clock = clock
        self._cases: dict[str, _Case] = {}

    def __len__(self) -> int:
        """Return how many grammars are refused unseen now."""
        now = self._clock()
        return sum(case.until_s > now for case in self._cases.values())

    def check(self, key: str) -> None:
        """Raise if a grammar is to be refused unseen.

        Raises
        ------
        GuidedError
            The last failure, and for how long.
        """
        case = self._cases.get(key)
        if case is None:
            return
        now = self._clock()
        if now >= case.until_s:
            if now - max(case.since_s, case.until_s) >= self._most_s:
                del self._cases[key]
            return
        left_s = case.until_s - now
        killed = f"has killed {case.killed} grammar workers and " if case.killed else ""
        message = f"{case.error.message}; it {killed}is refused for another {left_s:.0f} s"
        raise GuidedError(case.error.code, message, path=case.error.path)

    def record(self, key: str, error: GuidedError, killed: int | None = None) -> None:
        """Remember that compiling a grammar killed workers, as many as the error says unless told.

        Another error is none of them.
        """
        if error.code not in _KILLED:
            return
        case = self._case(key, error)
        case.killed += _KILLED[error.code] if killed is None else killed
        if case.killed >= self._after:
            self._refuse(case)

    def hold(self, key: str, error: GuidedError) -> None:
        """Refuse a grammar from now on, for what it did on a rank; once for all ranks that say so."""
        case = self._case(key, error)
        if self._clock() >= case.until_s:
            self._refuse(case)

    def _refuse(self, case: _Case) -> None:
        case.until_s = self._clock() + min(self._first_s * 2.0 ** min(case.terms, 32), self._most_s)
        case.terms += 1

    def _case(self, key: str, error: GuidedError) -> _Case:
        case = self._cases.setdefault(key, _Case(error))
        case.error, case.since_s = error, self._clock()
        if len(self._cases) > self._most_entries:
            others = (each for each in self._cases if each != key)
            del self._cases[
                min(others, key=lambda each: (self._cases[each].until_s, self._cases[each].since_s))
            ]
        return case

    def forgive(self, key: str) -> None:
        """Forget that a grammar killed workers: it has compiled. That says nothing of how slow it is."""
        if key in self._cases and self._cases[key].killed:
            del self._cases[key]

    def shown(self) -> tuple[QuarantinedGrammar, ...]:
        """Return those that are refused longest, the first first."""
        now = self._clock()
        held = [(case.until_s - now, key, case) for key, case in self._cases.items() if case.until_s > now]
        return tuple(
            QuarantinedGrammar(key=key, code=case.error.code.value, killed=case.killed, seconds=round(left_s))
            for left_s, key, case in sorted(held, key=lambda each: each[:2], reverse=True)[:_MOST_SHOWN]
        )


class Refusals:
    """Known refusals of grammars, by key.

    Parameters
    ----------
    most_entries
        Upper bound of refusals that depend on the grammar alone; the least recently used is evicted.
    quarantine
        Refusals of grammars that killed workers, which may have had other causes.
    """

    def __init__(self, most_entries: int, quarantine: Quarantine) -> None:
        self._most_entries = most_entries
        self.quarantine = quarantine
        self._certain: collections.OrderedDict[str, GuidedError] = collections.OrderedDict()

    def check(self, key: str) -> None:
        """Raise the known refusal of a key, if there is one.

        Raises
        ------
        GuidedError
            As it was refused before.
        """
        error = self._certain.get(key)
        if error is not None:
            self._certain.move_to_end(key)
            raise GuidedError(error.code, error.message, path=error.path)
        self.quarantine.check(key)

    def record(self, key: str, error: GuidedError) -> None:
        """Remember a refusal; one that says nothing about the grammar is not remembered."""
        if error.code in _CERTAIN:
            self._certain[key] = error
            if len(self._certain) > self._most_entries:
                self._certain.popitem(last=False)
        self.quarantine.record(key, error)

    def forgive(self, key: str) -> None:
        """Forget what a key is suspected of: it has compiled."""
        self.quarantine.forgive(key)
