"""A rank whose matchers are in their process, as a pod's are; what happens to that is the test's to say."""

import contextlib
import os
import signal
from collections.abc import Callable, Sequence
from typing import Any

import psutil

from guided_engine.matchers.beside import MatchersBeside
from guided_engine.matchers.matching import RankTraits
from guided_engine.matchers.memory import SharedMemory
from guided_engine.matchers.template import Made
from guided_grammar.llguidance.matcher import GuidanceMatcher
from support import rank as ranks
from support.rank import Rank

LETTERS = "[abc]*"


class Apart(Rank):
    """A rank whose matchers are in their process."""

    def _matchers(self, traits: RankTraits) -> MatchersBeside:
        memory = SharedMemory(64, ranks.VOCAB)
        self.renewed = 0

        def start() -> Any:
            return ranks.made(traits, memory, lambda _: None)

        def renewed() -> None:
            self.renewed += 1

        matchers = MatchersBeside(memory, lambda: Made({}, start), renewed)
        matchers.start()
        return matchers

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.matchers.pid, signal.SIGKILL)


def at(token: int, act: Callable[[], Any]) -> Callable[..., bool]:
    """Return a `_consume` that acts where this token comes."""
    consume = GuidanceMatcher._consume

    def consumed(self: GuidanceMatcher, tokens: Sequence[int]) -> bool:
        if token in tokens:
            act()
        return consume(self, tokens)

    return consumed


def dies() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def endless() -> None:
    while True:
        pass


def is_over(pid: int) -> bool:
    """Return whether a process has ended, whether or not somebody has asked how."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
