"""Arrays whose items differ: what that takes out of a mask.

What a token does where it ends an item is known beforehand, so that the items which are there tell what to
clear. The few that do more than that, as `0,1,`, are followed byte by byte.
"""

import codecs
import json
import re
from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from guided_contract.counting import Position
from guided_grammar.bounds import OUTSIDE, TEXT, scan
from guided_grammar.masks import words
from guided_grammar.unique_items import Place, UniqueItems, value

_Mask = npt.NDArray[np.int32]  # [ceil(vocabulary / 32)]

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
        self.tokens = tokens
        self._words = words(vocab_size)
        self.closing: dict[bytes, list[int]] = {}
        quoting = [index for index, token in enumerate(tokens) if b'"' in token]
        self.in_text = self._row(index for index in quoting if self._is_more(index))
        self.quoting = self._row(quoting)
        self.whole = self._row(index for index, token in enumerate(tokens) if _WHOLE.search(token))
        self.going_on = ~self._row(i for i, token in enumerate(tokens) if _ENDS_NUMBER.match(token))
        self.open_array = self._row(index for index, token in enumerate(tokens) if _ARRAY.search(token))

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

    def _row(self, some: Iterable[int]) -> _Mask:
        bits = np.zeros(self._words * 32, dtype=np.bool_)
        bits[[index for index in some if index < len(bits)]] = True
        return np.packbits(bits, bitorder="little").view(np.int32)


class UniqueRule:
    """The arrays of one grammar whose items differ, shared by all of its sequences; see counted_text.Rule."""

    def __init__(self, positions: Sequence[Position], table: ItemTable) -> None:
        self._items = UniqueItems(positions)
        self.start = self._items.start
        self._table = table

    def advance(self, place: Place, token: int) -> Place | None:
        """Return where the text stands after the token id `token`; None if it ends an item that is there."""
        return self._items.advance(place, self._table.tokens[token])

    def restrict(self, row: _Mask, place: Place) -> None:
        """Clear the tokens that would end an item which is there from one mask row."""
        table, (where, seen, text) = self._table, place
        if not self._items.is_inside(where):
            self._follow(row, place, table.open_array)
        elif where.mode != OUTSIDE:
            self._restrict_string(row, place)
        else:
            self._follow(row, place, table.whole)
            if text and value(text) in seen:
                np.bitwise_and(row, table.going_on, out=row)

    def _restrict_string(self, row: _Mask, place: Place) -> None:
        table, (where, seen, text) = self._table, place
        if where.mode != TEXT or any(_UNREADABLE in item for item in seen if isinstance(item, str)):
            self._follow(row, place, table.quoting)
            return
        self._follow(row, place, table.in_text)
        if not seen:
            return
        begun, cut = _read(text)
        for item in seen:
            if isinstance(item, str) and item.startswith(begun):
                rest = item[len(begun) :].encode(errors="surrogatepass")
                if rest.startswith(cut):  # what would make the string one that is there
                    for token in table.closing.get(rest[len(cut) :], ()):
                        _clear(row, token)

    def _follow(self, row: _Mask, place: Place, some: _Mask) -> None:
        found = row & some
        for word in np.flatnonzero(found).tolist():
            bits = int(found[word])
            for bit in range(32):
                if bits >> bit & 1 and self.advance(place, word * 32 + bit) is None:
                    _clear(row, word * 32 + bit)


def _read(text: bytes) -> tuple[str, bytes]:
    """Return what a string that is not closed yet begins with, and the bytes of a character that is cut."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    written = decoder.decode(text)
    return json.loads(written + '"', strict=False), decoder.getstate()[0]


def _clear(row: _Mask, token: int) -> None:
    if token >> 5 < row.size:
        row[token >> 5] &= ~np.uint32(1 << (token & 31)).view(np.int32)
