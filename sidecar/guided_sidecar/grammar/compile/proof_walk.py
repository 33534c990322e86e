"""One text of a compiled grammar, chosen token by token, and what it costs to come there."""

import itertools
import random
import re
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from guided_contract.counting import Position
from guided_contract.errors import ErrorCode
from guided_grammar.backend import Compiled
from guided_grammar.masks import words
from guided_grammar.matching import Matcher, MatcherError, SpentError
from guided_grammar.unique_items import UniqueItems
from guided_sidecar.grammar.compile import heard

# CPU time for one mask, or for accepting one token. A rank that takes so long for one sequence holds up its
# whole batch: a forward pass takes about as long, and real schemas take a thousandth.
SLOW_S: Final = 0.01
_REPEATED_BYTES: Final = 512  # for which one token is repeated
_SLOW_REPEATING_S: Final = 0.1  # CPU time for all of them
_FIRST_REPEATS: Final = 32  # and each doubling of them: a token whose cost has not grown is repeated no more
_GROWTH: Final = 1.5
_REPEATS_BUDGET_S: Final = 0.01  # of a walk's repeats, beyond which none is begun
_OTHERS: Final = 3  # tokens that are repeated, beside the one that was taken there
_TURN_EVERY: Final = 4  # steps in a string: letters alone end no address, nor digits a date
# Kinds of tokens, the first first: what ends a JSON text soonest outside of a string, in one, and in one at
# every fourth step. Long ones bring what is written letter by letter to its end.
_LATE: Final = rb"((?!\s+\Z)[^{\[]{4,})|((?!\s+\Z)[^{\[]+)|(.*\S.*)|(\s+)"
_ANY: Final = re.compile(rb"(.*)", re.DOTALL)
_AFTER_VALUE: Final = re.compile(rb"()|([}\]]+)|([}\],:]+)|" + _LATE, re.DOTALL)
_IN_STRING: Final = re.compile(rb'()|("[}\]]*)|("[}\],:]*)|' + _LATE, re.DOTALL)
_IN_TURN: Final = re.compile(rb'()|("[}\]]*)|("[}\],:]*)|([Z@.:/-])|([A-Y])|' + _LATE, re.DOTALL)
_ESCAPE: Final = re.compile(rb"\\.", re.DOTALL)
_DEAD_END: Final = "NoExtension"  # llguidance's word for a dead end


class Fault(NamedTuple):
    """Why a grammar is refused; fields as in errors.GuidedError."""

    code: ErrorCode
    message: str
    path: str | None = None


class Choice:
    """Chooses among one tokenizer's tokens.

    Parameters
    ----------
    tokens
        Each token's bytes, as many as the logits are wide; a token beyond them cannot be sampled.
    stop_tokens
        Those that end a text; their own is empty.
    """

    def __init__(self, tokens: Sequence[bytes], stop_tokens: frozenset[int]) -> None:
        self.texts = [b"" if number in stop_tokens else text for number, text in enumerate(tokens)]
        self._rows: dict[re.Pattern[bytes], Any] = {}
        for kinds in (_ANY, _AFTER_VALUE, _IN_STRING, _IN_TURN):
            found = map(kinds.fullmatch, self.texts)  # each text is of one kind
            indices = np.zeros(32 * words(len(self.texts)), dtype=np.int8)
            indices[: len(self.texts)] = [one.lastindex or 0 for one in found if one]
            every = (np.packbits(indices == kind, bitorder="little") for kind in range(1, kinds.groups + 1))
            self._rows[kinds] = [row.view(np.int32) for row in every]

    def among(self, row: Any, chooser: random.Random, kinds: re.Pattern[bytes] = _ANY) -> Iterator[int]:
        """Yield the tokens that a mask row ([ceil(vocabulary / 32)] int32) allows, kind by kind.

        Of each kind from a random one on, word by word, so that a choice costs no look at every token.
        """
        for of_kind in self._rows[kinds]:
            allowed = row & of_kind
            found = (allowed != 0).nonzero()[0]
            start = chooser.randrange(len(found)) if len(found) else 0
            for at in itertools.chain(found[start:], found[:start]):
                bits = [bit for bit in range(32) if allowed.item(at) >> bit & 1]
                chooser.shuffle(bits)
                yield from (32 * int(at) + bit for bit in bits)


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
    tokens
        What it took so far.
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
        self.tokens: list[int] = []
        self.text: bytes | None = None
        self._choice = choice
        self._compiled = compiled
        self._mask: Any = np.empty((1, words(compiled.vocab_size)), dtype=np.int32)  # [1, words]
        # Without Positions the text may be none that could be followed: a regex's, an EBNF grammar's.
        self._beside = UniqueItems(positions) if positions else None
        self._chooser = chooser
        self._play = play
        # How many tokens are before the last that is text, or 0, and where that leaves what ranks follow.
        self._last: tuple[int, Any] = (0, self._beside.start if self._beside is not None else None)

    def fault(self, most_steps: int, budget_s: float) -> Fault | None:
        """Walk to the end, or for so many steps, or so much CPU time; then repeat tokens on the way."""
        try:
            return self._walked(most_steps, time.thread_time() + budget_s) or self._repeated()
        except MatcherError as error:  # what it took before it cannot take again: it has used up what it may
            step = len(self.tokens)
            if _DEAD_END in error.said:
                return _dead_end(step)
            message = f"after {step} tokens, {self._compiled.backend} gives up: {heard.plain(error.said)}"
            return Fault(ErrorCode.GRAMMAR_UNSUPPORTED, message)

    def _walked(self, most_steps: int, until_s: float) -> Fault | None:
        matcher, text, now_s = self._compiled.matcher(), b"", time.thread_time()
        _, where = self._last
        for step in range(most_steps):
            self._fill(matcher)
            began_s, now_s = now_s, time.thread_time()
            if now_s - began_s > SLOW_S and (took_s := self._fill_again(matcher)) > SLOW_S:
                return _slow(step, "computing the next token mask", took_s)
            chosen = self._choose(where, text)
            if chosen is None:
                return _dead_end(step)
            token, after = chosen
            if not matcher.accept((token,)):
                self._fill(matcher)  # which tells why, where the library gave up
                return _dead_end(step, "it rejects a token that its mask allows")
            began_s, now_s = now_s, time.thread_time()
            # What a library makes once does not count.
            if now_s - began_s > SLOW_S and (took_s := self._accept_again(token)) > SLOW_S:
                return _slow(step + 1, "accepting the next one", took_s)
            if self._choice.texts[token]:
                self._last = len(self.tokens), where
            self.tokens.append(token)
            text, where = text + self._choice.texts[token], after
            if matcher.is_terminated():
                self.text = text
            if matcher.is_terminated() or now_s > until_s:
                break
        return None

    def _choose(self, where: Any, text: bytes) -> tuple[int, Any] | None:
        """Return the next token and where that leaves what ranks follow; None: no token can follow."""
        for token in self._choice.among(self._mask[0], self._chooser, self._kinds(text)):
            if self._beside is None:
                return token, None
            if (after := self._beside.advance(where, self._choice.texts[token])) is not None:
                return token, after
        return None

    def _kinds(self, text: bytes) -> re.Pattern[bytes]:
        """Return which kinds of tokens come next."""
        if (step := len(self.tokens)) < self._play:
            return _ANY
        if _ESCAPE.sub(b"", text).count(b'"') % 2 == 0:
            return _AFTER_VALUE
        return _IN_STRING if step % _TURN_EVERY else _IN_TURN

    def _repeated(self) -> Fault | None:
        """Repeat tokens at the last place: what is ambiguous takes ever longer for the same text once more.

        A rank ends such a sequence only after the token that was slow, and a tokenizer's longest may take
        minutes. The last place, for an ambiguity that a text runs into is as long as the text.
        """
        until_s = time.thread_time() + _REPEATS_BUDGET_S
        step, where = self._last
        self._fill(self._replay(step))
        allowed = self._choice.among(self._mask[0], self._chooser)
        own = self.tokens[step]
        for token in dict.fromkeys([own, *itertools.islice(allowed, _OTHERS)]):
            fault = self._repeat(self._replay(step), token, step, where)
            # The walk's own may end the text: another one is repeated, however slow the CPU is.
            if fault is not None or (token != own and time.thread_time() > until_s):
                return fault
        return None

    def _repeat(self, matcher: Matcher, token: int, step: int, where: Any) -> Fault | None:
        """Return what is wrong with a text in which a token is repeated."""
        text = self._choice.texts[token]
        now_s, times = time.thread_time(), list[float]()
        for count in range(1, _REPEATED_BYTES // max(1, len(text)) + 1):
            if self._beside is not None and (where := self._beside.advance(where, text)) is None:
                break
            try:
                is_allowed = matcher.accept((token,))
            except SpentError:
                raise
            except MatcherError:
                is_allowed = False
            if not is_allowed or matcher.is_terminated():
                return None
            step += 1
            began_s, now_s = now_s, time.thread_time()
            times.append(now_s - began_s)
            if sum(times) > _SLOW_REPEATING_S:
                message = f"accepting {count} tokens takes over {1e3 * _SLOW_REPEATING_S:.0f} ms"
                return Fault(ErrorCode.GRAMMAR_SLOW, message)
            if count >= _FIRST_REPEATS and count & (count - 1) == 0:
                first, second = times[: count // 2], times[count // 2 :]
                # An interrupted repeat hides growth from the sum, costs that take turns from the median.
                if all(of(second) <= _GROWTH * of(first) for of in (sum, statistics.median)):
                    break
        if (took_s := self._fill_again(matcher)) > SLOW_S and (took_s := self._fill_again(matcher)) > SLOW_S:
            return _slow(step, "computing the next token mask", took_s)
        return None if self._mask.any() else _dead_end(step)

    def _replay(self, steps: int) -> Matcher:
        """Return another matcher after so many steps of this walk."""
        matcher = self._compiled.matcher()
        for token in self.tokens[:steps]:
            matcher.accept((token,))
        return matcher

    def _accept_again(self, token: int) -> float:
        """Return the CPU seconds that a token takes another matcher after this walk."""
        matcher = self._replay(len(self.tokens))
        return _seconds(lambda: matcher.accept((token,)))

    def _fill_again(self, matcher: Matcher) -> float:
        return _seconds(lambda: self._fill(matcher))

    def _fill(self, matcher: Matcher) -> None:
        self._mask.fill(-1)  # xgrammar leaves it as it is where every token is allowed
        matcher.fill(self._mask, 0)


def _dead_end(step: int, reason: str = "no token can follow") -> Fault:
    """Return the fault of a step at which no token can follow."""
    where = f"after {step} tokens {reason}"
    if not step:
        where = "no token can begin it, because no finite text matches it"
    return Fault(ErrorCode.GRAMMAR_DEAD_END, f"the grammar has a dead end: {where}")


def _slow(step: int, what: str, took_s: float) -> Fault:
    message = f"after {step} tokens, {what} takes {1e3 * took_s:.0f} ms; the limit is {1e3 * SLOW_S:.0f} ms"
    return Fault(ErrorCode.GRAMMAR_SLOW, message)


def _seconds(work: Callable[[], object]) -> float:
    start = time.thread_time()
    work()
    return time.thread_time() - start
