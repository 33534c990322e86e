"""Checks a compiled grammar before anybody sees an answer, by two walks with the real tokenizer.

It begins, a walk meets no dead end, no token takes long to accept or mask to make, also where a token is
repeated, and what a walk of a JSON schema ends with is valid under the schema as it was written. The first
walk takes the shortest way to the end, the second a random one, both with a bound of CPU time.

So a walk may not come to a slow place. The rest is the rank's: a sequence that takes it twice as long as the
proof allows ends (guided_engine.ranks.stopwatch).
"""

import random
from collections.abc import Sequence
from typing import Final

from guided_contract.counting import Position
from guided_contract.errors import ErrorCode
from guided_grammar.backend import Compiled
from guided_sidecar.grammar.compile.judge import Judge
from guided_sidecar.grammar.compile.proof_walk import Choice, Fault, Walk
from guided_sidecar.grammar.compile.reading import Grammar

# Steps and CPU seconds of the shortest walk, and of the random one: a step in structure takes microseconds.
_WALKS: Final = ((2048, 0.1), (512, 0.02))
_PLAY: Final = (4, 24)  # steps after which a random walk takes what ends it, and as many as a long first took
_LONG: Final = 48


class Prover:
    """Proves grammars of one tokenizer; parameters as of Choice."""

    def __init__(self, tokens: Sequence[bytes], stop_tokens: frozenset[int]) -> None:
        self._choice = Choice(tokens, stop_tokens)

    def prove(
        self, compiled: Compiled, positions: Sequence[Position], grammar: Grammar
    ) -> tuple[Fault | None, int]:
        """Return what is wrong with a grammar, and how many walks came to the end of a text.

        It walks always in the same ways: no name and no release changes a verdict.

        Parameters
        ----------
        positions
            The bounds that ranks count beside it: walks keep them as they do.
        grammar
            What was asked for: of a JSON schema, whole texts are judged by the schema as it was written.
        """
        judge = Judge(grammar.text()) if grammar.kind == "json" and grammar.schemas else None
        texts = shortest = 0
        for number, (most_steps, budget_s) in enumerate(_WALKS):
            chooser = random.Random(number)  # noqa: S311 - no secret
            play = shortest + chooser.randrange(*_PLAY) if number else 0
            walk = Walk(self._choice, compiled, positions, chooser, play)
            fault = walk.fault(most_steps, budget_s)
            shortest = len(walk.tokens) if len(walk.tokens) > _LONG else 0
            if walk.text is not None and fault is None:
                texts += 1
                if judge is not None:
                    fault = _invalid(judge, walk.text, compiled.backend)
            if fault is not None:
                return fault, texts
        return None, texts


def _invalid(judge: Judge, text: bytes, backend: str) -> Fault | None:
    path = judge.violation(text)
    if path is None:
        return None
    message = f"{path}: {backend} does not enforce this in this schema"
    return Fault(ErrorCode.GRAMMAR_UNSUPPORTED, message, path)
