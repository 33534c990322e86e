"""Arrays whose items differ: what that takes out of a mask.

What a token does where it ends an item is known beforehand, so that the items which are there tell what to
clear. The few that do more than that, as `0,1,`, are followed byte by byte.
"""

import codecs
import json
import re
from collections.abc import Sequence
from typing import Final

import numpy as np

from guided_contract.counting import Position
from guided_engine.matchers.token_rows import row_of, tokens_of
from guided_grammar.bounds import OUTSIDE, TEXT, scan
from guided_grammar.masks import Bitmask, forbid
from guided_grammar.unique_items import ItemsState, UniqueItems, value

_UNREADABLE: Final = "\ufffd"  # what a client sees for bytes that are no UTF-8
_ENDS_NUMBER: Final = re.compile(rb"[,\]\s]")
# A value that is whole, the first letter of a word, or a 0, which nothing but its end may follow, or does not
# change.
_WHOLE: Final = re.compile(rb'".*"|[tfn]|(?:^|[,\[\s])-?0$|(?:^|[0.])[eE]|[0-9a-z][,\]\s]', re.DOTALL)
_ARRAY: Final = re.compile(rb"\[\s*[^\s,\]].*,\s*[^\s]", re.DOTALL)


class ItemTable:
    """What the tokens of one vocabulary (bytes; see TokenTable) may do to arrays whose items differ.

    Attributes
    ----------
    closing
        Tokens that close a string, by what they add to it, in UTF-8.
    going_on
        A mask row without the tokens that end a number at once.
    in_text, quoting, whole, open_array
        Tokens to follow where a text stands in a string, in an escape there, outside of strings, and outside
        of such arrays, as mask rows.
    """

    def __init__(self, tokens: Sequence[bytes], vocab_size: int) -> None:
        self.tokens = tokens[: vocab_size + -vocab_size % 32]
        some = [index for index, token in enumerate(self.tokens) if b'"' in token]
        self.closing: dict[bytes, list[int]] = {}
        self.in_text = row_of((index for index in some if self._is_more(index)), vocab_size)
        self.quoting = row_of(some, vocab_size)
        self.whole, ends, self.open_array = (
            row_of((index for index, token in enumerate(tokens) if find(token)), vocab_size)
            for find in (_WHOLE.search, _ENDS_NUMBER.match, _ARRAY.search)
        )
        self.going_on = ~ends

    def _is_more(self, index: int) -> bool:
        """Note what a token adds to a string that it closes; True: that does not say all that it does."""
        token = self.tokens[index]
        mode, _, end = scan(TEXT, token)
        if mode != OUTSIDE:
            return False
        added, rest = token[: end - 1], token[end:]
        if b"\\" in added:
            try:
                added = json.loads(f'"{added.decode()}"', strict=False).encode(errors="surrogatepass")
            except ValueError:  # it begins within a character, or is no escape
                return True
        self.closing.setdefault(added, []).append(index)
        return _WHOLE.search(rest) is not None


class UniqueRule:
    """The arrays of one grammar whose items differ, shared by all of its sequences; see counted_text.Rule."""

    def __init__(self, positions: Sequence[Position], table: ItemTable) -> None:
        self._items = UniqueItems(positions)
        self.start = self._items.start
        self._table = table

    def advance(self, state: ItemsState, token: int) -> ItemsState | None:
        """Return where the text stands after the token id `token`; None if it ends an item that is there."""
        return self._items.advance(state, self._table.tokens[token])

    def restrict(self, row: Bitmask, state: ItemsState) -> None:
        """Clear the tokens that would end an item which is there from one mask row."""
        table, (where, seen, text) = self._table, state
        if not self._items.is_inside(where):
            self._follow(row, state, table.open_array)
        elif where.mode != OUTSIDE:
            self._restrict_string(row, state)
        else:
            self._follow(row, state, table.whole)
            if text and value(text) in seen:
                np.bitwise_and(row, table.going_on, out=row)

    def _restrict_string(self, row: Bitmask, state: ItemsState) -> None:
        """Clear the tokens that would complete the string to one that is in the array."""
        table, (where, seen, text) = self._table, state
        if where.mode != TEXT or any(_UNREADABLE in item for item in seen if isinstance(item, str)):
            self._follow(row, state, table.quoting)
            return
        self._follow(row, state, table.in_text)
        if not seen:
            return
        begun, cut = _read(text)
        for item in seen:
            if isinstance(item, str) and item.startswith(begun):
                rest = item[len(begun) :].encode(errors="surrogatepass")
                if rest.startswith(cut):
                    for token in table.closing.get(rest[len(cut) :], ()):
                        forbid(row, token)

    def _follow(self, row: Bitmask, state: ItemsState, some: Bitmask) -> None:
        for token in tokens_of(row & some):
            if self.advance(state, token) is None:
                forbid(row, token)


def _read(text: bytes) -> tuple[str, bytes]:
    """Return what a string that is not closed yet begins with, and the bytes of a character that is cut."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    written = decoder.decode(text)
    return json.loads(written + '"', strict=False), decoder.getstate()[0]
