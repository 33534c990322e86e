"""Checks a compiled grammar before a rank loads it, by random walks with the real tokenizer.

It begins, a walk meets no dead end, no mask takes long to make, and what a walk of a JSON schema ends with is
valid under the schema as it was written. Bounded in time: a walk that is slow as a whole is cut short.
"""

import itertools
import random
import time
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from guided_contract.counting import Position
from guided_contract.errors import ErrorCode
from guided_grammar.backend import Compiled
from guided_grammar.bounds import Bounds, Where
from guided_grammar.masks import words
from guided_grammar.matching import MatcherError
from guided_sidecar.grammar.compile.instance_check import Judge, NotJsonError

_WALKS: Final = 4
_STEPS: Final = 48  # of one walk
_LONGEST_PLAY: Final = 24  # steps after which a walk takes what ends it
_BUDGET_S: Final = 0.03  # of all walks together: a step in structure takes microseconds
_DRAWS: Final = 4  # of tokens at random, before all that are allowed are looked at in order
# CPU time for one mask. A rank that fills so long for one sequence holds up its whole batch: a forward pass
# takes about as long, and the masks of real schemas take a thousandth.
_SLOW_FILL_S: Final = 0.01
_ENDING: Final = (b"}", b"]", b'"', b"}}", b"]}", b'"}', b'"]', b"/", b"\n")


class Fault(NamedTuple):
    """Why a grammar is refused; fields as in errors.GuidedError."""

    code: ErrorCode
    message: str
    path: str | None = None


class Prover:
    """Proves grammars of one tokenizer.

    Parameters
    ----------
    tokens
        Each token's bytes, as many as the logits are wide; a token beyond them cannot be sampled.
    stop_tokens
        Those that end a text.
    """

    def __init__(self, tokens: Sequence[bytes], stop_tokens: frozenset[int]) -> None:
        self._tokens = tokens
        self._stop_tokens = stop_tokens
        numbers = (number for number, text in enumerate(tokens) if text in _ENDING)
        ending = _row([*numbers, *stop_tokens], len(tokens))
        self._ending_words = np.flatnonzero(ending)
        self._ending = ending[self._ending_words]

    def fault(
        self, compiled: Compiled, positions: Sequence[Position], judge: Judge | None, seed: str
    ) -> Fault | None:
        """Walk through a grammar, and return what is wrong with it.

        Parameters
        ----------
        positions
            The bounds that ranks count beside it: walks keep them as they do.
        judge
            Judges whole texts; None: nothing is known of them.
        seed
            The grammar's key: its walks are always the same.
        """
        until = time.monotonic() + _BUDGET_S
        for number in range(_WALKS):
            walk = _Walk(self, compiled, positions, random.Random(f"{seed}{number}"))  # noqa: S311 - no secret
            fault = walk.fault(until)
            if fault is None and judge is not None and walk.text is not None:
                fault = _invalid(judge, walk.text, compiled.backend)
            if fault is not None:
                return fault
            if time.monotonic() > until:
                break
        return None

    def choices(self, row: Any, chooser: random.Random, *, ends_soon: bool) -> Iterator[int]:
        """Yield token ids that a mask row allows: some at random, then all.

        `row` is [ceil(vocabulary / 32)] int32. With `ends_soon`, tokens that may end the text come first.
        """
        if ends_soon:
            known = np.count_nonzero(self._ending_words < len(row))
            words = self._ending_words[:known]
            yield from _some(words, row[words] & self._ending[:known], chooser)
        for _ in range(_DRAWS):  # where most are allowed, this is all
            token = chooser.randrange(len(self._tokens))
            if row[token >> 5] >> (token & 31) & 1:
                yield token
        words = np.flatnonzero(row)
        found = itertools.chain(_some(words, row[words], chooser), _every(row))
        yield from (token for token in found if token < len(self._tokens))

    def bytes_of(self, token: int) -> bytes:
        """Return a token's text; of one that ends it, none."""
        return b"" if token in self._stop_tokens else self._tokens[token]


class _Walk:
    """One random text of a grammar; `text` is it if it came to its end and is text at all."""

    def __init__(
        self, prover: Prover, compiled: Compiled, positions: Sequence[Position], chooser: random.Random
    ) -> None:
        self.text: str | None = None
        self._prover = prover
        self._matcher = compiled.matcher()
        self._mask: Any = np.empty(
            (1, words(compiled.vocab_size)), dtype=np.int32
        )  # [1, ceil(vocab / 32)] int32
        # Without bounds the text may be none that they could follow: a regex's, an EBNF grammar's.
        self._bounds = Bounds(positions) if positions else None
        self._chooser = chooser
        self._play = chooser.randrange(_LONGEST_PLAY)

    def fault(self, until: float) -> Fault | None:
        where, text = Where(), b""
        for step in range(_STEPS):
            if (slow := self._fill()) > _SLOW_FILL_S:
                return _slow(step, slow)
            chosen = self._choose(where, ends_soon=step > self._play)
            if chosen is None:
                return _dead_end(step)
            token, where = chosen
            if not self._matcher.accept((token,)):
                message = (
                    f"the grammar has a dead end: after {step} tokens, it rejects a token that "
                    f"its mask allows"
                )
                return Fault(ErrorCode.GRAMMAR_DEAD_END, message)
            text += self._prover.bytes_of(token)
            if self._matcher.is_terminated():
                self.text = _decoded(text)
                return None
            if time.monotonic() > until:
                return None
        return None

    def _fill(self) -> float:
        """Fill the mask and return the CPU seconds that it took, the least of two if the first took long."""
        took_s = self._timed_fill()
        return min(took_s, self._timed_fill()) if took_s > _SLOW_FILL_S else took_s

    def _timed_fill(self) -> float:
        start = time.thread_time()
        try:
            self._mask.fill(-1)  # xgrammar leaves it as it is where every token is allowed
            self._matcher.fill(self._mask, 0)
        except MatcherError:
            self._mask.fill(0)  # nothing can follow
        return time.thread_time() - start

    def _choose(self, where: Where, *, ends_soon: bool) -> tuple[int, Where] | None:
        for token in self._prover.choices(self._mask[0], self._chooser, ends_soon=ends_soon):
            data = self._prover.bytes_of(token)
            after = self._bounds.advance(where, data) if self._bounds is not None else where
            if after is not None:
                return token, after
        return None


def _row(numbers: Sequence[int], vocab_size: int) -> Any:
    bits = np.zeros(words(vocab_size) * 32, dtype=np.uint8)
    bits[[number for number in numbers if number < vocab_size]] = 1
    return np.packbits(bits, bitorder="little").view(np.int32)  # [ceil(vocab / 32)] int32


def _some(words: Any, bits: Any, chooser: random.Random) -> Iterator[int]:
    """Yield some tokens at random of a row's `words`, the numbers of which have `bits`.

    Unpacking a row of 131,072 tokens takes 300 us, five times as long as its mask.
    """
    filled = np.flatnonzero(bits)
    for _ in range(min(_DRAWS, len(filled))):
        index = filled[chooser.randrange(len(filled))]
        allowed = int(bits[index])
        yield 32 * int(words[index]) + chooser.choice([bit for bit in range(32) if allowed >> bit & 1])


def _every(row: Any) -> Iterator[int]:
    yield from map(int, np.flatnonzero(np.unpackbits(row.view(np.uint8), bitorder="little")))


def _decoded(text: bytes) -> str | None:
    try:
        return text.decode()
    except UnicodeDecodeError:
        return None  # xgrammar's classes take what is no UTF-8; clients see another character for it


def _invalid(judge: Judge, text: str, backend: str) -> Fault | None:
    try:
        path = judge.violation(text)
    except NotJsonError:
        message = f"$: {backend} generates text that is not valid JSON for this schema"
        return Fault(ErrorCode.GRAMMAR_UNSUPPORTED, message, "$")
    if path is None:
        return None
    message = f"{path}: {backend} does not enforce this keyword in this schema"
    return Fault(ErrorCode.GRAMMAR_UNSUPPORTED, message, path)


def _dead_end(step: int) -> Fault:
    after = (
        f"after {step} tokens no token can follow"
        if step
        else "no token can begin it, because no finite text matches it"
    )
    return Fault(ErrorCode.GRAMMAR_DEAD_END, f"the grammar has a dead end: {after}")


def _slow(step: int, took_s: float) -> Fault:
    message = f"after {step} tokens, computing the next token mask takes {1e3 * took_s:.0f} ms"
    return Fault(ErrorCode.GRAMMAR_SLOW, f"{message}; the limit is {1e3 * _SLOW_FILL_S:.0f} ms")
