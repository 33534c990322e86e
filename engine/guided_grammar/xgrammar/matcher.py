"""One sequence's state in an xgrammar grammar."""

from collections.abc import Sequence
from typing import Any

import xgrammar

from guided_grammar.masks import Bitmask
from guided_grammar.matching import Matcher
from guided_grammar.xgrammar.strings import PlainStrings


class XGrammarMatcher(Matcher):
    """A matcher over a compiled grammar that all sequences of its key share.

    Parameters
    ----------
    stop_tokens
        The request's own; without them the tokenizer's stop tokens end it, as upstream.
    strings
        The grammar's plain strings, None where it has none that can be told.
    """

    backend = "xgrammar"

    def __init__(
        self, compiled: Any, stop_tokens: Sequence[int] | None, strings: PlainStrings | None = None
    ) -> None:
        self.native = xgrammar.GrammarMatcher(
            compiled, override_stop_tokens=list(stop_tokens) if stop_tokens else None
        )
        super().__init__(self.native.stop_token_ids)
        self.strings = strings
        # Those that stay inside a plain string wherever one is.
        self.plain_tokens = strings.plain.tokens if strings is not None else frozenset()
        # The mask of the next token while it stays what it was: inside a plain string.
        self.string_mask: Bitmask | None = None
        self._ahead: list[tuple[Sequence[int], Bitmask]] = []

    def _consume(self, tokens: Sequence[int]) -> bool:
        before = len(tokens)
        if self._ahead or self.string_mask is not None:
            before, self.string_mask = self._string_in(tokens)
            self._ahead.clear()
        accept_token = self.native.accept_token
        # Tokens within a plain string change nothing that may follow: the native matcher is not told of them.
        for token in tokens[:before]:
            if not accept_token(token):
                self.string_mask = None
                return False
        return True

    def _count_valid(self, drafts: Sequence[int]) -> int:
        valid = 0
        try:
            for token in drafts:
                if not self.native.accept_token(token):
                    break
                valid += 1
        finally:
            if valid:
                self.native.rollback(valid)
        return valid

    def _fill(self, bitmask: Bitmask, row: int) -> None:
        self.native.fill_next_token_bitmask(bitmask, row)

    def _rewind(self) -> None:
        self.native.reset()
        self.string_mask = None
        self._ahead.clear()

    def start_walk(self) -> Bitmask | None:
        """Forget what the last fill saw ahead; return the next token's mask if it is known already."""
        self._ahead.clear()
        return self.string_mask

    def keep_if_string(self, drafts: Sequence[int], mask: Bitmask) -> Bitmask | None:
        """Return a copy of the native matcher's mask if it stands inside a plain string after `drafts`."""
        if self.strings is None or not self.strings.holds(self.native, mask):
            return None
        kept = mask.copy()
        if drafts:
            self._ahead.append((drafts, kept))
        else:
            self.string_mask = kept
        return kept

    def _string_in(self, tokens: Sequence[int]) -> tuple[int, Bitmask | None]:
        """Return how many tokens come before a plain string that lasts, and its mask if a fill showed it."""
        for drafts, mask in reversed(self._ahead):
            known = len(drafts)
            if list(tokens[:known]) == drafts:
                return (known, mask) if self.plain_tokens.issuperset(tokens[known:]) else (len(tokens), None)
        if self.string_mask is not None and self.plain_tokens.issuperset(tokens):
            return 0, self.string_mask
        return len(tokens), None
