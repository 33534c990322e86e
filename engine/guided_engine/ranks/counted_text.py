"""One sequence's text, followed through what holds beside its grammar."""

from collections.abc import Sequence
from typing import Any, Protocol

from guided_grammar.masks import Bitmask, allows


class Rule(Protocol):
    """What holds of texts beside a grammar, shared by sequences; states never change."""

    start: Any

    def advance(self, where: Any, token: int) -> Any:
        """Return the state after a token that the grammar allows; None: forbidden, as far as known here."""

    def restrict(self, row: Bitmask, where: Any) -> None:
        """Clear what the rule forbids from one mask row, [ceil(vocabulary / 32)] int32."""


class CountedText:
    """A text that keeps several rules; see guided_grammar.matching.Beside."""

    def __init__(self, *rules: Rule) -> None:
        self._rules = rules
        self._wheres = [rule.start for rule in rules]

    def accept(self, tokens: Sequence[int]) -> bool:
        """Advance by tokens that the grammar has accepted; False: one of them breaks a rule."""
        for token in tokens:
            after = self._after(self._wheres, token)
            if after is None:
                return False
            self._wheres = after
        return True

    def valid_prefix(self, drafts: Sequence[int]) -> int:
        """Return how many leading drafts, all allowed by the grammar, keep the rules; the state stays."""
        wheres = self._wheres
        for index, token in enumerate(drafts):
            after = self._after(wheres, token)
            if after is None:
                return index
            wheres = after
        return len(drafts)

    def restrict(self, rows: Bitmask, drafts: Sequence[int]) -> int:
        """Clear the tokens that would break a rule; return how many leading drafts keep the rules.

        `rows` are [rows, ceil(vocabulary / 32)] int32, filled: row 0 is the next token's, row i + 1 the one
        after draft i. Rows behind a draft that breaks a rule are left as they are.
        """
        wheres = self._wheres
        for index, row in enumerate(rows):
            draft = drafts[index] if index < len(drafts) else None
            was_allowed = draft is not None and allows(row, draft)
            for rule, where in zip(self._rules, wheres, strict=True):
                rule.restrict(row, where)
            if draft is not None:
                after = self._after(wheres, draft)
                if after is None or (was_allowed and not allows(row, draft)):
                    return index
                wheres = after
        return len(drafts)

    def reset(self) -> None:
        """Go back to the start."""
        self._wheres = [rule.start for rule in self._rules]

    def _after(self, wheres: Sequence[Any], token: int) -> list[Any] | None:
        after = []
        for rule, where in zip(self._rules, wheres, strict=True):
            one = rule.advance(where, token)
            if one is None:
                return None
            after.append(one)
        return after
