"""Random walks through a grammar's masks that come to an end, without a model."""

from typing import Any, Final

import numpy as np

from support.soak.answers import Matcher

_STEPS: Final = 120
_HURRY: Final = 50  # from here on, nearly only what closes a value
_HURRIED: Final = 20.0


class Walker:
    """Walks for one tokenizer; text ends sooner than with equal chances for all tokens."""

    def __init__(self, tokenizer: Any, width: int) -> None:
        self._tokenizer = tokenizer
        self._eos: int = tokenizer.eos_token_id
        self._weights = np.array([self._weight(token) for token in range(width)])

    def text(self, matcher: Matcher, rng: np.random.Generator) -> str | None:
        """Return a whole text of the grammar; None where a walk did not come to its end.

        Raises
        ------
        AssertionError
            No token may follow, or one that may is refused.
        """
        tokens: list[int] = []
        for step in range(_STEPS):
            chances = matcher.mask() * self._weights
            if step > _HURRY:
                chances = chances * np.where(self._weights > 1, _HURRIED, 1)
            assert chances.any(), f"nothing may follow {self._tokenizer.decode(tokens)!r}"
            token = int(rng.choice(len(chances), p=chances / chances.sum()))
            assert matcher.accept(token), f"{token} may not follow {self._tokenizer.decode(tokens)!r}"
            if token == self._eos:
                return str(self._tokenizer.decode(tokens))
            tokens.append(token)
        return None

    def _weight(self, token: int) -> float:
        if token == self._eos:
            return 400
        text = self._tokenizer.decode([token])
        if text[:1] in set('"}],:'):
            return 12
        if not text.strip():
            return 0.5
        return 6 if len(text) == 1 else 1
