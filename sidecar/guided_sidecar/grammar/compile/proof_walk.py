"""One random text of a compiled grammar, and what it costs to come there."""

import itertools
import random
import time
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from guided_contract.counting import Position
from guided_contract.errors import ErrorCode
from guided_grammar.backend import Compiled
from guided_grammar.masks import words
from guided_grammar.matching import Matcher, MatcherError, SpentError
from guided_grammar.unique_items import follower
from guided_sidecar.grammar.compile import library_words, proof_faults
from guided_sidecar.grammar.compile.proof_faults import SLOW_S, Fault
from guided_sidecar.grammar.compile.token_choice import TokenChoice

_SHORT: Final = 512
_REPEATED_BYTES: Final = 512  # for which one token is repeated
_SLOW_REPEATING_S: Final = 0.1  # CPU time for all of them
_FIRST_REPEATS: Final = 16  # after twice as many, a token whose cost does not grow is repeated no more
_GROWTH: Final = 1.5
_MOST_TAKEN: Final = 8  # tokens that are passed over since another walk has taken them
_LONG_S: Final = _SLOW_REPEATING_S / _REPEATED_BYTES
_MOST_PLACES: Final = 6  # that are looked at for some where a token may be repeated
_ENOUGH: Final = 2
_DEAD_END: Final = "NoExtension"  # llguidance's word for a dead end
_TURN_EVERY: Final = 4  # steps in a string: letters alone end no address, nor digits a date
_OTHERS: Final = 3  # tokens at one place, beside the one that was taken there


class _Step(NamedTuple):
    """A token that was accepted, where that left what ranks follow, and the seconds that it took."""

    token: int
    where: Any
    took_s: float


class Walk:
    """A walk through one grammar.

    Parameters
    ----------
    choice, tokens
        The tokenizer's; a token that ends a text has none.
    positions
        What ranks follow beside the grammar: the walk keeps to it as they do.
    play
        After how many steps it takes what ends it.
    taken
        The tokens that earlier walks of this grammar took: while it plays, this one takes others if it can.

    Attributes
    ----------
    text
        What it wrote, if it came to its end.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - what a walk needs, put together once
        self,
        choice: TokenChoice,
        tokens: Callable[[int], bytes],
        compiled: Compiled,
        positions: Sequence[Position],
        chooser: random.Random,
        play: int,
        taken: Collection[int],
    ) -> None:
        self.text: bytes | None = None
        self._choice = choice
        self._tokens = tokens
        self._compiled = compiled
        self._matcher = compiled.matcher()
        self._mask: Any = np.empty((1, words(compiled.vocab_size)), dtype=np.int32)  # [1, words]
        # Without Positions the text may be none that could be followed: a regex's, an EBNF grammar's.
        self._beside = follower(positions)
        self._start = self._beside.start if self._beside is not None else None
        self._chooser = chooser
        self._play = play
        self._taken = taken
        self._steps: list[_Step] = []
        self._gave_up: MatcherError | None = None  # why the library could not make the last mask

    def fault(self, most_steps: int, until_s: float, patience_s: float = 0.0) -> Fault | None:
        """Walk to the end, or for so many steps, or until this thread has had so much CPU time.

        Within the first _SHORT steps it has `patience_s` more: how far it comes is else the machine's to say.
        """
        where, text, is_in_string, is_escaped = self._start, b"", False, False
        for step in range(most_steps):
            if (slow := self._fill(self._matcher)) > SLOW_S:
                return proof_faults.slow_mask(step, slow)
            chosen = self._choose(where, ends_soon=step >= self._play, is_in_string=is_in_string)
            if chosen is None:
                return self._end(step)
            token, where = chosen
            if fault := self._accept(token, where):
                return fault
            data = self._tokens(token)
            is_in_string, is_escaped = _string_after(data, is_in_string, is_escaped)
            text += data
            if self._matcher.is_terminated():
                self.text = text
                return None
            if time.thread_time() > until_s + (patience_s if step < _SHORT else 0.0):
                return None
        return None

    def given_up(self, error: MatcherError, step: int | None = None) -> Fault:
        """Return the fault where the library, and not the grammar, has come to its end."""
        after = len(self._steps) if step is None else step
        message = (
            f"after {after} tokens, {self._compiled.backend} gives up: {library_words.plain(error.said)}"
        )
        return Fault(ErrorCode.GRAMMAR_UNSUPPORTED, message)

    def _end(self, step: int) -> Fault:
        """Return the fault of a step that no token can follow."""
        if self._gave_up is None or _DEAD_END in self._gave_up.said:
            return proof_faults.dead_end(step)
        return self.given_up(self._gave_up, step)

    @property
    def tokens(self) -> list[int]:
        """What it took so far."""
        return [step.token for step in self._steps]

    def repeated_fault(self, until_s: float) -> Fault | None:
        """Repeat tokens where the walk came through, first where it took longest.

        After so much CPU time of this thread no other token is tried; one is: what is slow has spent it.
        An ambiguous grammar takes ever longer for the same text once more, and a model may write just that.
        """
        repeated = tried = 0
        written = [index for index, token in enumerate(self.tokens) if self._tokens(token)]
        by_cost = sorted(written, key=lambda index: -self._steps[index].took_s)
        # The last place first: an ambiguity that a text runs into is as long as the text.
        for index in itertools.islice(dict.fromkeys([*written[-1:], *by_cost]), _MOST_PLACES):
            self._fill(self._replay(index))
            others = itertools.islice(
                self._choice.among(self._mask[0], self._chooser, ends_soon=False), _OTHERS
            )
            own = self.tokens[: index + 1]
            cycles = [(index, (token,)) for token in dict.fromkeys([own[-1], *others])]
            for start, cycle in [*cycles, (max(0, index - 1), tuple(own[-2:]))]:
                if tried and time.thread_time() > until_s:
                    return None
                tried += 1
                repeats, fault = self._repeat(start, cycle)
                if fault is not None:
                    return fault
                repeated += repeats > 1
            if repeated >= _ENOUGH:
                break
        return None

    def _accept(self, token: int, where: Any) -> Fault | None:
        step = len(self._steps)
        took_s, is_allowed = _timed(self._matcher, token)
        if not is_allowed:
            self._fill(self._matcher)
            return self.given_up(self._gave_up) if self._gave_up is not None else proof_faults.rejects(step)
        self._steps.append(_Step(token, where, took_s))
        if took_s > SLOW_S and (cpu_s := self._replayed(self.tokens)) > SLOW_S:
            return proof_faults.slow_token(step, cpu_s)
        return None

    def _repeat(self, index: int, cycle: Sequence[int]) -> tuple[int, Fault | None]:
        """Return how many tokens were accepted that go round, from a step's place on, and what is wrong."""
        matcher = self._replay(index)
        where = self._steps[index - 1].where if index else self._start
        most = _REPEATED_BYTES * len(cycle) // max(1, sum(len(self._tokens(token)) for token in cycle))
        costs_s: list[float] = []
        until_s = time.thread_time() + _SLOW_REPEATING_S
        for token in itertools.islice(itertools.cycle(cycle), most):
            if self._beside is not None:
                after = self._beside.advance(where, self._tokens(token))
                if after is None:
                    break
                where = after
            took_s, is_allowed = _timed(matcher, token)
            if not is_allowed or matcher.is_terminated():
                return len(costs_s), None
            costs_s.append(took_s)
            if took_s > SLOW_S:
                taken = [*self.tokens[:index], *itertools.islice(itertools.cycle(cycle), len(costs_s))]
                if (cpu_s := self._replayed(taken)) > SLOW_S:
                    return len(costs_s), proof_faults.slow_token(len(taken) - 1, cpu_s)
            if took_s > _LONG_S and time.thread_time() > until_s:
                message = f"accepting {len(costs_s)} tokens takes over {1e3 * _SLOW_REPEATING_S:.0f} ms"
                return len(costs_s), Fault(ErrorCode.GRAMMAR_SLOW, message)
            if _is_looked_at(len(costs_s)) and not _grows(costs_s):
                break
        if (slow := self._fill(matcher)) > SLOW_S:
            return len(costs_s), proof_faults.slow_mask(index + len(costs_s), slow)
        return len(costs_s), None if self._mask.any() else self._end(index + len(costs_s))

    def _replay(self, steps: int) -> Matcher:
        """Return another matcher after so many steps of this walk."""
        matcher = self._compiled.matcher()
        for step in self._steps[:steps]:
            matcher.accept((step.token,))
        return matcher

    def _replayed(self, tokens: Sequence[int]) -> float:
        """Return the CPU seconds that the last of these tokens takes another matcher.

        What a library makes once does not count, nor how long the thread had no core.
        """
        matcher = self._compiled.matcher()
        for token in tokens[:-1]:
            matcher.accept((token,))
        return _timed(matcher, tokens[-1], time.thread_time)[0]

    def _fill(self, matcher: Matcher) -> float:
        """Fill the mask and return the seconds that it took, of CPU time in a second fill if it took long."""
        took_s = self._timed_fill(matcher, time.perf_counter)
        return self._timed_fill(matcher, time.thread_time) if took_s > SLOW_S else took_s

    def _timed_fill(self, matcher: Matcher, clock: Callable[[], float]) -> float:
        self._gave_up = None
        start = clock()
        try:
            self._mask.fill(-1)  # xgrammar leaves it as it is where every token is allowed
            matcher.fill(self._mask, 0)
        except MatcherError as error:
            self._mask.fill(0)  # nothing can follow
            self._gave_up = error
        return clock() - start

    def _choose(self, where: Any, *, ends_soon: bool, is_in_string: bool) -> tuple[int, Any] | None:
        tokens = self._choice.among(
            self._mask[0],
            self._chooser,
            ends_soon=ends_soon,
            is_in_string=is_in_string,
            is_turning=is_in_string and len(self._steps) % _TURN_EVERY == 0,
        )
        known: tuple[int, Any] | None = None
        for tried, token in enumerate(tokens):
            after = self._beside.advance(where, self._tokens(token)) if self._beside is not None else where
            if after is None and self._beside is not None:
                continue
            if ends_soon or token not in self._taken:
                return token, after
            known = known or (token, after)
            if tried >= _MOST_TAKEN:
                break
        return known


def _timed(
    matcher: Matcher, token: int, clock: Callable[[], float] = time.perf_counter
) -> tuple[float, bool]:
    start = clock()
    try:
        is_allowed = matcher.accept((token,))
    except SpentError:
        raise
    except MatcherError:
        is_allowed = False
    return clock() - start, is_allowed


def _string_after(data: bytes, is_in_string: bool, is_escaped: bool) -> tuple[bool, bool]:  # noqa: FBT001 - a state
    """Return whether JSON text stands in a string, and behind a backslash there, after more of it."""
    if b'"' not in data and b"\\" not in data:
        return is_in_string, False
    for letter in data:
        if is_escaped:
            is_escaped = False
        elif letter == ord('"'):
            is_in_string = not is_in_string
        else:
            is_escaped = is_in_string and letter == ord("\\")
    return is_in_string, is_escaped


def _is_looked_at(repeats: int) -> bool:
    """Return whether to look at what so many repeats took: where they have doubled."""
    return repeats >= 2 * _FIRST_REPEATS and not repeats & (repeats - 1)


def _grows(costs_s: Sequence[float]) -> bool:
    """Return whether the second half of the repeats took longer than the first."""
    half = len(costs_s) // 2
    return sum(costs_s[half:]) > _GROWTH * sum(costs_s[:half])
