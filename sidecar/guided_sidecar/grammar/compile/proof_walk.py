"""One text of a compiled grammar, chosen token by token, and what it costs to come there."""

import itertools
import random
import re
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from guided_contract.counting import Position
from guided_contract.errors import ErrorCode
from guided_grammar.backend import Compiled
from guided_grammar.masks import words
from guided_grammar.matching import Matcher, MatcherError, SpentError
from guided_grammar.unique_items import UniqueItems
from guided_sidecar.grammar.compile import heard
from guided_sidecar.grammar.compile.token_choice import Choice

# CPU time for one mask, or for accepting one token. A rank that takes so long for one sequence holds up its
# whole batch: a forward pass takes about as long, and real schemas take a thousandth.
SLOW_S: Final = 0.01
_REPEATED_BYTES: Final = 512  # for which one token is repeated
_SLOW_REPEATING_S: Final = 0.1  # CPU time for all of them
_LONG_S: Final = _SLOW_REPEATING_S / _REPEATED_BYTES
_FIRST_REPEATS: Final = 32  # and each doubling of them: a token whose cost has not grown is repeated no more
_GROWTH: Final = 1.5
_REPEATS_BUDGET_S: Final = 0.01  # of a walk's repeats, beyond which none is begun
_OTHERS: Final = 3  # tokens that are repeated, beside the one that was taken there
_TURN_EVERY: Final = 4  # steps in a string: letters alone end no address, nor digits a date
_DEAD_END: Final = "NoExtension"  # llguidance's word for a dead end
_ESCAPE: Final = re.compile(rb"\\.", re.DOTALL)


class Fault(NamedTuple):
    """Why a grammar is refused; fields as in errors.GuidedError."""

    code: ErrorCode
    message: str
    path: str | None = None


class _Step(NamedTuple):
    """A token that was accepted, and where that left what ranks follow."""

    token: int
    where: Any


class Walk:
    """A walk through one grammar.

    Parameters
    ----------
    positions
        What ranks follow beside the grammar: the walk keeps to it as they do.
    play
        After how many steps it takes what ends it.

    Attributes
    ----------
    text
        What it wrote, if it came to its end.
    """

    def __init__(
        self,
        choice: Choice,
        compiled: Compiled,
        positions: Sequence[Position],
        chooser: random.Random,
        play: int,
    ) -> None:
        self.text: bytes | None = None
        self._choice = choice
        self._compiled = compiled
        self._mask: Any = np.empty((1, words(compiled.vocab_size)), dtype=np.int32)  # [1, words]
        # Without Positions the text may be none that could be followed: a regex's, an EBNF grammar's.
        self._beside = UniqueItems(positions) if positions else None
        self._chooser = chooser
        self._play = play
        self._steps: list[_Step] = []
        self._gave_up: MatcherError | None = None  # why the library could not make the last mask

    @property
    def tokens(self) -> list[int]:
        """What it took so far."""
        return [step.token for step in self._steps]

    def fault(self, most_steps: int, budget_s: float) -> Fault | None:
        """Walk to the end, or for so many steps, or so much CPU time; then repeat tokens on the way."""
        try:
            return self._walked(most_steps, time.thread_time() + budget_s) or self._repeated()
        except MatcherError as error:  # what it took before it cannot take again: it has used up what it may
            return self._given_up(error, len(self._steps))

    def _walked(self, most_steps: int, until_s: float) -> Fault | None:
        matcher, text = self._compiled.matcher(), b""
        for step in range(most_steps):
            if (took_s := self._fill(matcher)) > SLOW_S:
                return _slow(step, "computing the next token mask", took_s)
            chosen = self._choose(self._where(step), text)
            if chosen is None:
                return self._dead_end(step)
            token, where = chosen
            took_s, is_allowed = _timed(matcher, token)
            if not is_allowed:
                self._fill(matcher)
                return self._dead_end(step, "it rejects a token that its mask allows")
            self._steps.append(_Step(token, where))
            if took_s > SLOW_S and (took_s := self._again(self.tokens)) > SLOW_S:
                return _slow(step, "accepting the next one", took_s)
            text += self._choice.texts[token]
            if matcher.is_terminated():
                self.text = text
                break
            if time.thread_time() > until_s:
                break
        return None

    def _where(self, step: int) -> Any:
        """Return where what ranks follow stands after so many steps."""
        if step:
            return self._steps[step - 1].where
        return self._beside.start if self._beside is not None else None

    def _choose(self, where: Any, text: bytes) -> tuple[int, Any] | None:
        ends_soon = len(self._steps) >= self._play
        is_in_string = _ESCAPE.sub(b"", text).count(b'"') % 2 == 1
        is_turning = ends_soon and is_in_string and len(self._steps) % _TURN_EVERY == 0
        for token in self._choice.among(
            self._mask[0],
            self._chooser,
            ends_soon=ends_soon,
            is_in_string=is_in_string,
            is_turning=is_turning,
        ):
            if self._beside is None:
                return token, None
            if (after := self._beside.advance(where, self._choice.texts[token])) is not None:
                return token, after
        return None

    def _repeated(self) -> Fault | None:
        """Repeat tokens at the last place: what is ambiguous takes ever longer for the same text once more.

        A rank ends such a sequence only after the token that was slow, and a tokenizer's longest may take
        minutes. The last place, for an ambiguity that a text runs into is as long as the text.
        """
        written = [index for index, step in enumerate(self._steps) if self._choice.texts[step.token]]
        if not written:
            return None
        until_s = time.thread_time() + _REPEATS_BUDGET_S
        index = written[-1]
        self._fill(self._replay(index))
        allowed = self._choice.among(
            self._mask[0], self._chooser, ends_soon=False, is_in_string=False, is_turning=False
        )
        for token in dict.fromkeys([self.tokens[index], *itertools.islice(allowed, _OTHERS)]):
            fault = self._repeat(index, token)
            if fault is not None or time.thread_time() > until_s:
                return fault
        return None

    def _repeat(self, index: int, token: int) -> Fault | None:
        """Return what is wrong with a text in which a token is repeated from a step's place on."""
        matcher, where = self._replay(index), self._where(index)
        text = self._choice.texts[token]
        costs_s: list[float] = []
        for count in range(1, _REPEATED_BYTES // max(1, len(text)) + 1):
            if self._beside is not None and (where := self._beside.advance(where, text)) is None:
                break
            took_s, is_allowed = _timed(matcher, token)
            if not is_allowed or matcher.is_terminated():
                return None
            costs_s.append(took_s)
            if took_s > _LONG_S and sum(costs_s) > _SLOW_REPEATING_S:
                message = f"accepting {count} tokens takes over {1e3 * _SLOW_REPEATING_S:.0f} ms"
                return Fault(ErrorCode.GRAMMAR_SLOW, message)
            if not _may_grow(costs_s):
                break
        if (took_s := self._fill(matcher)) > SLOW_S:
            return _slow(index + len(costs_s), "computing the next token mask", took_s)
        return None if self._mask.any() else self._dead_end(index + len(costs_s))

    def _replay(self, steps: int) -> Matcher:
        """Return another matcher after so many steps of this walk."""
        matcher = self._compiled.matcher()
        for token in self.tokens[:steps]:
            matcher.accept((token,))
        return matcher

    def _again(self, tokens: Sequence[int]) -> float:
        """Return the CPU seconds that the last of these tokens takes another matcher.

        What a library makes once does not count.
        """
        matcher = self._compiled.matcher()
        for token in tokens[:-1]:
            matcher.accept((token,))
        return _timed(matcher, tokens[-1])[0]

    def _fill(self, matcher: Matcher) -> float:
        """Fill the mask and return the CPU seconds that it took, in a second fill if it took long."""
        took_s = _seconds(lambda: self._filled(matcher))
        return _seconds(lambda: self._filled(matcher)) if took_s > SLOW_S else took_s

    def _filled(self, matcher: Matcher) -> None:
        self._gave_up = None
        try:
            self._mask.fill(-1)  # xgrammar leaves it as it is where every token is allowed
            matcher.fill(self._mask, 0)
        except MatcherError as error:
            self._mask.fill(0)  # nothing can follow
            self._gave_up = error

    def _dead_end(self, step: int, reason: str = "no token can follow") -> Fault:
        """Return the fault of a step at which no token can follow."""
        if self._gave_up is not None and _DEAD_END not in self._gave_up.said:
            return self._given_up(self._gave_up, step)
        where = f"after {step} tokens {reason}"
        if not step:
            where = "no token can begin it, because no finite text matches it"
        return Fault(ErrorCode.GRAMMAR_DEAD_END, f"the grammar has a dead end: {where}")

    def _given_up(self, error: MatcherError, step: int) -> Fault:
        """Return the fault where the library, and not the grammar, has come to its end."""
        said = heard.plain(error.said)
        message = f"after {step} tokens, {self._compiled.backend} gives up: {said}"
        return Fault(ErrorCode.GRAMMAR_UNSUPPORTED, message)


def _slow(step: int, what: str, took_s: float) -> Fault:
    message = f"after {step} tokens, {what} takes {1e3 * took_s:.0f} ms; the limit is {1e3 * SLOW_S:.0f} ms"
    return Fault(ErrorCode.GRAMMAR_SLOW, message)


def _timed(matcher: Matcher, token: int) -> tuple[float, bool]:
    """Return the CPU seconds that a token takes, and whether it is accepted."""
    start = time.thread_time()
    try:
        is_allowed = matcher.accept((token,))
    except SpentError:
        raise
    except MatcherError:
        is_allowed = False
    return time.thread_time() - start, is_allowed


def _seconds(work: Callable[[], None]) -> float:
    start = time.thread_time()
    work()
    return time.thread_time() - start


def _may_grow(costs_s: Sequence[float]) -> bool:
    """Return whether the second half of repeats took longer than the first; looked at as they double."""
    count, half = len(costs_s), len(costs_s) // 2
    if count < _FIRST_REPEATS or count & (count - 1):
        return True
    return sum(costs_s[half:]) > _GROWTH * sum(costs_s[:half])
