"""Checks a compiled grammar before anybody sees an answer, by random walks with the real tokenizer.

It begins, a walk meets no dead end, no token takes long to accept or mask to make, also where a token is
repeated, and what a walk of a JSON schema ends with is valid under the schema as it was written. The first
walk takes the shortest way to the end. Bounded in time: a walk that is slow as a whole is cut short.

So a walk may not come to a slow place. What is slow in a schema is a pattern that repeats what repeats, hence
each of these is walked alone, wherever in the schema it stands. The rest is the rank's: a sequence that takes
it twice as long as the proof allows ends (guided_engine.ranks.slowness).
"""

import random
import time
from collections.abc import Sequence
from typing import Final, NamedTuple

from guided_contract.counting import Position
from guided_contract.errors import ErrorCode
from guided_grammar.backend import Compiled
from guided_grammar.matching import MatcherError
from guided_sidecar.grammar.compile.instance_check import Judge, NotJsonError
from guided_sidecar.grammar.compile.proof_faults import Fault
from guided_sidecar.grammar.compile.proof_walk import Walk
from guided_sidecar.grammar.compile.token_choice import TokenChoice

_WALKS: Final = 2
_STEPS: Final = 2048  # of the first walk
_RANDOM_STEPS: Final = 512  # of another
_PLAY: Final = (4, 24)  # steps after which a random walk takes what ends it, and as many as a long first took
_LONG: Final = 48
# CPU time of the first walk, and of the others together: a step in structure takes microseconds.
_FIRST_BUDGET_S: Final = 0.03
_PATIENCE_S: Final = 0.07
_BUDGET_S: Final = 0.02
_PART_STEPS: Final = 16  # of a part of a grammar that is walked alone
_REPEATS_BUDGET_S: Final = 0.01  # of each walk's repeats, beyond which none is begun
_PART_BUDGET_S: Final = 0.1  # of each of both for a part


class Proof(NamedTuple):
    """What is wrong with a grammar, None for nothing, and how many walks came to the end of a text."""

    fault: Fault | None
    texts: int


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
        self._choice = TokenChoice(tokens, stop_tokens)

    def prove(self, compiled: Compiled, positions: Sequence[Position], judge: Judge | None) -> Proof:
        """Walk through a grammar, always in the same ways: no name and no release changes a verdict.

        Parameters
        ----------
        positions
            The bounds that ranks count beside it: walks keep them as they do.
        judge
            Judges whole texts; None: nothing is known of them.
        """
        texts = shortest = 0
        taken: set[int] = set()
        until_s = time.thread_time() + _FIRST_BUDGET_S
        for number in range(_WALKS):
            chooser = random.Random(number)  # noqa: S311 - no secret
            play = shortest + chooser.randrange(*_PLAY) if number else 0
            walk = Walk(self._choice, self._bytes_of, compiled, positions, chooser, play, taken)
            if number:
                fault = _of_walk(walk, _RANDOM_STEPS, until_s)
            else:
                fault = _of_walk(walk, _STEPS, until_s, patience_s=_PATIENCE_S)
            taken.update(walk.tokens)
            shortest = len(walk.tokens) if len(walk.tokens) > _LONG else 0
            if walk.text is not None and fault is None:
                texts += 1
                if judge is not None and (text := _decoded(walk.text)) is not None:
                    fault = _invalid(judge, text, compiled.backend)
            if fault is not None:
                return Proof(fault, texts)
            if not number:
                until_s = time.thread_time() + _BUDGET_S
            elif time.thread_time() > until_s:
                break
        return Proof(None, texts)

    def slow_fault(self, compiled: Compiled) -> Fault | None:
        """Return what is wrong with the time of a part of a grammar, compiled alone; None: nothing is."""
        chooser = random.Random(0)  # noqa: S311 - no secret
        walk = Walk(self._choice, self._bytes_of, compiled, (), chooser, _PART_STEPS, ())
        fault = _of_walk(walk, _PART_STEPS, time.thread_time() + _PART_BUDGET_S, _PART_BUDGET_S)
        is_limit = fault is not None and fault.code in {ErrorCode.GRAMMAR_SLOW, ErrorCode.GRAMMAR_UNSUPPORTED}
        return fault if is_limit else None

    def _bytes_of(self, token: int) -> bytes:
        """Return a token's text; of one that ends it, none."""
        return b"" if token in self._stop_tokens else self._tokens[token]


def _of_walk(
    walk: Walk,
    most_steps: int,
    until_s: float,
    repeats_s: float = _REPEATS_BUDGET_S,
    *,
    patience_s: float = 0.0,
) -> Fault | None:
    """Return what is wrong along a walk and where its tokens are repeated."""
    try:
        fault = walk.fault(most_steps, until_s, patience_s)
        return fault or walk.repeated_fault(time.thread_time() + repeats_s)
    except MatcherError as error:  # what it took before it cannot take again: it has used up what it may
        return walk.given_up(error)


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
