"""One sequence's state in an xgrammar grammar, and how xgrammar fills the masks of a step."""

from collections.abc import Sequence
from typing import Any

import xgrammar

from guided_grammar.masks import Bitmask
from guided_grammar.matching import Matcher
from guided_grammar.walk import Walk


class XGrammarMatcher(Matcher):
    """A matcher over a compiled grammar that all sequences of its key share.

    Parameters
    ----------
    stop_tokens
        The request's own; without them the tokenizer's stop tokens end it, as upstream.
    """

    backend = "xgrammar"

    def __init__(self, compiled: Any, stop_tokens: Sequence[int] | None) -> None:
        self.native = xgrammar.GrammarMatcher(
            compiled, override_stop_tokens=list(stop_tokens) if stop_tokens else None
        )
        super().__init__(self.native.stop_token_ids)

    def _consume(self, tokens: Sequence[int]) -> bool:
        return all(map(self.native.accept_token, tokens))

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


class XGrammarFiller:
    """Fills level by level: one native call for all first rows, one for all first drafts, and so on."""

    def __init__(self, threads: int) -> None:
        self._batch = xgrammar.BatchGrammarMatcher(max_threads=threads)

    def fill(self, walks: Sequence[Walk[XGrammarMatcher]], bitmask: Bitmask) -> None:
        """Fill the rows of sequences that are not terminated; raises what the library raises."""
        live = list(walks)
        try:
            while live:
                self._batch.batch_fill_next_token_bitmask(
                    [walk.matcher.native for walk in live], bitmask, [walk.row + walk.valid for walk in live]
                )
                live = [walk for walk in live if _goes_on(walk)]
        finally:
            for walk in walks:
                if walk.valid:
                    walk.matcher.native.rollback(walk.valid)


def _goes_on(walk: Walk[XGrammarMatcher]) -> bool:
    """Take note of the row that was filled, and advance; tell whether there is another."""
    walk.filled = 1 + walk.valid
    if walk.valid == len(walk.drafts):
        return False
    draft = walk.drafts[walk.valid]
    if not walk.matcher.native.accept_token(draft):
        return False
    walk.valid += 1
    return draft not in walk.matcher.ends
