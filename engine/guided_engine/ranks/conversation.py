"""What a rank says to the process of its matchers, and how it goes on with another one if that dies."""

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from guided_contract.errors import ErrorCode
from guided_engine.matchers.beside import MatchersBeside, MatchersLostError
from guided_engine.matchers.messages import Answer, Ask, Message

_log = logging.getLogger("guided_engine")
_MOST: Final = 5  # processes that may die in a step before a sequence is found guilty


class Conversation:
    """Messages are sent some at a time: to wake a process takes the rank's thread 50 us.

    Parameters
    ----------
    begin_again
        Returns what another process is told first: all that is alive, and the step.
    accuse
        Told that so many processes in a row died or hung at work for the sequence of this number, and what it
        would end with; returns whether it does.
    """

    def __init__(
        self,
        matchers: MatchersBeside,
        begin_again: Callable[[], Iterable[Message]],
        accuse: Callable[[int, int, ErrorCode], bool],
    ) -> None:
        self._matchers = matchers
        self._begin_again = begin_again
        self._accuse = accuse
        self._unsent: list[Message] = []
        self._ask: Ask | None = None  # the latest
        self._masked: list[str] = []  # of the latest answer

    def tell(self, message: Message) -> None:
        """Have a message sent with the next ones."""
        self._unsent.append(message)

    def send(self) -> None:
        """Send what there is."""
        if self._unsent:
            self._matchers.send(*self._unsent)
            self._unsent = []

    def ask(self, slot: int, learned: tuple[Sequence[str], Any], given_up: dict[str, str]) -> None:
        """Ask for the step's masks; see messages.Ask."""
        number = 1 if self._ask is None else self._ask.number + 1
        request_ids, drafts = learned
        self._ask = Ask(number, slot, list(request_ids), list(drafts), given_up)
        self.tell(self._ask)
        self.send()

    def answer(self) -> Answer | None:
        """Return the answer to the latest Ask, whoever gives it; None: too many processes died."""
        number, deaths, left = 0, 0, _MOST
        while left:
            left -= 1
            try:
                return self._latest()
            except MatchersLostError as lost:
                deaths = deaths + 1 if lost.number == number else 1
                number = lost.number
                if number > 0 and self._accuse(number, deaths, lost.code):
                    left = _MOST
                if not left:
                    break
                try:
                    self._matchers.renew()
                except OSError:  # as for want of file descriptors
                    _log.exception("guidedmodel: no process of matchers can be started")
                    break
                self._unsent = [*self._begin_again(), *([] if self._ask is None else [self._ask])]
                self.send()
        return None

    def _latest(self) -> Answer:
        """Return the answer to the latest Ask, with the ends of those before that nobody fetched."""
        assert self._ask is not None
        ends = []
        while True:
            answer = self._matchers.answer()
            ends += answer.ends
            if answer.request_ids is not None:
                self._masked = answer.request_ids
            if answer.number == self._ask.number:
                answer.request_ids, answer.ends = self._masked, ends
                return answer
