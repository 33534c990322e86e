"""Phrases in a text that grows by tokens: where the text stands, and which tokens would complete one.

All of it works on bytes, so that it does not matter how tokens cut a phrase or a character.
"""

import bisect
import functools
import re
import sys
from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

START: Final = 0

Ranges = tuple[tuple[int, int], ...]  # of places in SortedTokens.order, each without its end


class SortedTokens:
    """The tokens that are text, in the order of their bytes: those with a common beginning are neighbours.

    Attributes
    ----------
    order
        Their ids.
    """

    def __init__(self, tokens: Sequence[bytes]) -> None:
        order = sorted((token for token, text in enumerate(tokens) if text), key=tokens.__getitem__)
        self.order: npt.NDArray[np.int64] = np.array(order, np.int64)
        self._texts = [tokens[token] for token in order]

    def __len__(self) -> int:
        return len(self._texts)

    def beginning_with(self, text: bytes, low: int, high: int) -> tuple[int, int]:
        """Return the range within another one of those that begin with some UTF-8."""
        low = bisect.bisect_left(self._texts, text, low, high)
        behind = text[:-1] + bytes((text[-1] + 1,))  # no byte of UTF-8 is the largest
        return low, bisect.bisect_left(self._texts, behind, low, high)

    def containing(self, phrases: "Phrases") -> npt.NDArray[np.int64]:
        """Return the ids of those that hold a whole phrase."""
        held = [number for number, text in enumerate(self._texts) if phrases.is_in(text)]
        return self.order[held]


class Phrases:
    """An Aho-Corasick automaton.

    A text stands at a node: the longest of its ends with which a phrase begins. START is the empty one.

    Parameters
    ----------
    phrases
        None of them empty.
    ignore_case
        Whether characters count as the same that do for `re.IGNORECASE`.

    Attributes
    ----------
    longest
        Bytes of the longest phrase; what stands further back in a text does not matter.
    """

    def __init__(self, phrases: Iterable[str], *, ignore_case: bool = False) -> None:
        self._next: list[dict[int, int]] = [{}]
        self._is_end = [False]
        self._back = [START]  # the node of the longest end of a node's text that is a node itself
        self.longest = 0
        alike = _alike if ignore_case else _itself
        for phrase in phrases:
            self._add([alike(character) for character in phrase])
        self._nodes = self._linked()

    def __len__(self) -> int:
        return len(self._next)

    def follow(self, node: int, text: bytes) -> int:
        """Return the node of a text that goes on."""
        for byte in text:
            node = self._after(node, byte)
        return node

    def is_in(self, text: bytes) -> bool:
        """Return whether a text holds a phrase."""
        node = START
        for byte in text:
            node = self._after(node, byte)
            if self._is_end[node]:
                return True
        return False

    def completions(self, tokens: SortedTokens) -> list[Ranges]:
        """Return for each node which tokens complete a phrase that began before them."""
        found: list[Ranges] = [()] * len(self)
        for node in self._nodes:
            found[node] = _joined([*self._rests(node, tokens), *found[self._back[node]]])
        return found

    def _add(self, characters: Sequence[Sequence[bytes]]) -> None:
        """Add a phrase; of each character all spellings lead to the same node."""
        node = START
        for spellings in characters:
            if (known := self._at(node, spellings[0])) is not None:
                node = known
                continue
            after = self._new()
            for spelling in spellings:
                at = node
                for byte in spelling[:-1]:
                    if byte not in self._next[at]:
                        self._next[at][byte] = self._new()
                    at = self._next[at][byte]
                self._next[at][spelling[-1]] = after
            node = after
        self._is_end[node] = True
        self.longest = max(self.longest, sum(max(map(len, spellings)) for spellings in characters))

    def _new(self) -> int:
        self._next.append({})
        self._is_end.append(False)
        self._back.append(START)
        return len(self._next) - 1

    def _at(self, node: int | None, text: bytes) -> int | None:
        for byte in text:
            node = None if node is None else self._next[node].get(byte)
        return node

    def _linked(self) -> list[int]:
        """Return all nodes but START, each behind those of shorter texts, and link them."""
        nodes = [START]
        seen = {START}
        for node in nodes:  # which grows meanwhile
            for byte, after in self._next[node].items():
                if after not in seen:
                    seen.add(after)
                    nodes.append(after)
                    self._back[after] = START if node == START else self._after(self._back[node], byte)
                    self._is_end[after] |= self._is_end[self._back[after]]
        return nodes[1:]

    def _after(self, node: int, byte: int) -> int:
        while (after := self._next[node].get(byte)) is None and node != START:
            node = self._back[node]
        return START if after is None else after

    def _rests(self, node: int, tokens: SortedTokens) -> list[tuple[int, int]]:
        """Return which tokens begin with what lies between a node and an end ahead of it."""
        found = []
        ahead = [(node, b"", 0, len(tokens))]
        while ahead:
            at, before, low, high = ahead.pop()
            for byte, after in self._next[at].items():
                text = before + bytes((byte,))
                within = tokens.beginning_with(text, low, high)
                if within[0] == within[1]:
                    continue
                if self._is_end[after]:
                    found.append(within)
                else:
                    ahead.append((after, text, *within))
        return found


def _joined(ranges: Sequence[tuple[int, int]]) -> Ranges:
    """Return the same places in ranges that neither overlap nor touch, in ascending order."""
    joined: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if joined and low <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(high, joined[-1][1]))
        else:
            joined.append((low, high))
    return tuple(joined)


def _itself(character: str) -> Sequence[bytes]:
    return (character.encode(),)


@functools.cache
def _alike(character: str) -> Sequence[bytes]:
    """Return the spellings of a character in upper, lower and title case."""
    others = re.findall(re.escape(character), _cased(), re.IGNORECASE)
    return sorted(one.encode() for one in {character, *others})


@functools.cache
def _cased() -> str:
    every = map(chr, range(sys.maxunicode + 1))
    return "".join(character for character in every if character.lower() != character.upper())
