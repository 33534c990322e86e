"""A schema compiled by our whole path for each library alone, and texts walked through a rank's matchers."""

import random
from collections.abc import Callable
from typing import Any, Final

import numpy as np
from devtools import tinymodel

from guided_contract.backends import NAMES
from guided_contract.wire import Backend
from guided_grammar.matching import Matcher, MatcherError
from support.worker_and_rank import EOS, WorkerAndRank

LIBRARIES: Final[list[Backend]] = list(NAMES.values())
_STEPS: Final = 90
_HURRY: Final = 40  # from here on, nearly only what closes a value


class DeadEndError(Exception):
    """No token may follow a text."""


class Compilers:
    """Our path from a schema to what a rank has, and how likely a walk takes each of the tiny model's tokens.

    In several ways, so that no text is too rare.
    """

    def __init__(self) -> None:
        from transformers import AutoTokenizer

        self.ours = WorkerAndRank.of("tiny")
        self._tokenizer: Any = AutoTokenizer.from_pretrained(tinymodel.models() / "tiny")
        texts = self.ours.tokens
        closes = np.array([text[:1] in b'"}],:' and text != b"" for text in texts])
        single = np.array([len(text) == 1 for text in texts])
        blank = np.array([not text.strip() for text in texts])
        escapes = np.array([text[:1] == b"\\" or text in {b"u", b"0", b"6", b"1"} for text in texts])
        digits = np.array([bool(text) and set(text) <= set(b"0123456789.-+eE") for text in texts])
        calm = np.where(closes, 12.0, np.where(blank, 0.3, np.where(single, 6.0, 1.0)))
        more = (300.0 * escapes, 60.0 * digits, 20.0 * blank)
        self.weights = [calm, np.ones(len(texts)), *(calm + one for one in more)]
        self.hurry = np.where(closes, 20.0, np.where(single & ~blank, 2.0, 0.1))
        for weights in (*self.weights, self.hurry):
            weights[EOS] = 400

    def tokens(self, text: str, *, apart: bool = False) -> list[int]:
        """Return a text's tokens, or its bytes' tokens, without the end of sequence."""
        if apart:
            return self.ours.spelled(text)
        return list(self._tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True))

    def compiled(self, schema: Any, backend: Backend) -> "Grammar":
        """Compile a schema as if there were one library, without a proof, and load it."""
        return Grammar(self, self.ours.matchers("json", schema, backend, is_proven=False))

    def served(self, schema: Any) -> "Grammar":
        """Compile a schema as a pod with `backend: Auto` does, proof included, and load it."""
        return Grammar(self, self.ours.matchers("json", schema))


class Grammar:
    """A schema as one library has it on a rank."""

    def __init__(self, words: Compilers, matcher: Callable[[], Matcher]) -> None:
        self._words = words
        self._matcher = matcher

    def accepts(self, text: str, *, apart: bool = False) -> bool:
        """Return whether a text may be generated, from its first token to its end."""
        matcher = self._matcher()
        return matcher.accept([*self._words.tokens(text, apart=apart), EOS]) and matcher.is_terminated()

    def walked(self, chance: random.Random, start: str = "") -> str | None:
        """Return a random text that begins as `start` does as far as that goes; None: it did not end.

        Raises
        ------
        DeadEndError
            No token may follow.
        """
        matcher, words = self._matcher(), self._words
        text = b""
        for token in words.tokens(start):
            if not matcher.valid_prefix([token]):
                break
            matcher.accept([token])
            text += words.ours.tokens[token]
        weights = chance.choice(words.weights)
        for step in range(_STEPS):
            try:
                allowed = words.ours.allowed(matcher)
            except MatcherError as error:
                raise DeadEndError(text.decode(errors="replace")) from error
            chances = np.cumsum(allowed * (words.hurry if step > _HURRY else weights))
            if not chances[-1]:
                raise DeadEndError(text.decode(errors="replace"))
            token = int(np.searchsorted(chances, chance.random() * chances[-1], side="right"))
            assert matcher.accept([token]), f"{token} is in the mask and may not follow {text!r}"
            if token == EOS:
                try:
                    return text.decode()
                except UnicodeDecodeError:
                    return None
            text += words.ours.tokens[token]
        return None
