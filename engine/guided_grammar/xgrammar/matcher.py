"""One sequence's state in an xgrammar grammar, and how xgrammar fills the masks of a step."""

from collections.abc import Sequence
from typing import Any

import xgrammar

from guided_grammar.guided_rows import GuidedRows
from guided_grammar.masks import Bitmask
from guided_grammar.matching import Matcher


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

    def fill(self, batch: Sequence[GuidedRows[XGrammarMatcher]], bitmask: Bitmask) -> None:
        """Fill the rows of sequences that are not terminated; raises what the library raises."""
        live = list(batch)
        try:
            while live:
                matchers = [guided.matcher.native for guided in live]
                rows = [guided.row + guided.valid for guided in live]
                self._batch.batch_fill_next_token_bitmask(matchers, bitmask, rows)
                live = [guided for guided in live if _goes_on(guided)]
        finally:
            for guided in batch:
                if guided.valid:
                    guided.matcher.native.rollback(guided.valid)


def _goes_on(guided: GuidedRows[XGrammarMatcher]) -> bool:
    """Take note of the row that was filled, and advance; tell whether there is another."""
    guided.filled = 1 + guided.valid
    if guided.valid == len(guided.drafts):
        return False
    draft = guided.drafts[guided.valid]
    if not guided.matcher.native.accept_token(draft):
        return False
    guided.valid += 1
    return draft not in guided.matcher.ends
