"""Patterns as automata: written without lookaround.

A pattern's states are an alternating automaton: a lookahead asks for another text beside the rest. Which of
them hold of the end of a text follows from those of an end that is one character shorter. So a deterministic
automaton reads texts from their end, and that one read backwards again is the smallest that reads them
(Brzozowski). Its states are taken away one by one until a pattern is left.
"""

import functools
import itertools
import re
import warnings
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from guided_sidecar.grammar.schema import characters, regexes
from guided_sidecar.grammar.schema.characters import ANY, PIECE, Ranges

_PARSER: Final[Any] = re._parser  # type: ignore[attr-defined] # noqa: SLF001 - Python's own, of re.compile
EMPTY_CLASSES: Final = {"[]": r"[^\s\S]", "[^]": r"[\s\S]"}
# What Python reads as ECMA does.
_ESCAPE: Final = re.compile(
    r"\\(?:x[0-9a-fA-F]{2}|u(?![dD][89a-fA-F])[0-9a-fA-F]{4}|[dDwWsSnrtfv]|[^a-zA-Z0-9])"
)
_UNREAD: Final = re.compile(r"\(\?(?![:=!]|<[A-Za-z_]\w*>)|\{,")
_MOST_STATES: Final = 2048  # of a pattern, and
_MOST_FOUND: Final = 512  # of what reads its texts, and
_MOST_STEPS: Final = 1 << 18  # looks at the pattern's states until that is there
_MOST_CHARACTERS: Final = 1 << 13  # of a pattern that is written
_TOO_LONG: Final = (
    "rewritten without lookaround it is too long: move a part of it to another pattern in allOf"
)
_NOT_READ: Final = (
    "a pattern with a lookahead must not have lookbehind, \\b, \\p or flags: list the allowed characters"
)

_ONE_OF, _LETTERS, _AHEAD, _NOT_AHEAD, _START, _END = range(6)


class UnreadError(Exception):
    """A pattern is not read, or too much is to be looked at; the message says which."""


@functools.lru_cache(512)
def without_lookaround(pattern: str) -> str:
    """Return a pattern without lookaround that matches the same texts.

    Raises
    ------
    UnreadError
        That cannot be told.
    """
    made = _Automaton()
    table, may_end = _smallest(made, made.searched(pattern))
    try:
        return f"^{regexes.written(table, may_end, most=_MOST_CHARACTERS)}$"
    except regexes.TooLongError:
        raise UnreadError(_TOO_LONG) from None


def class_of(piece: str) -> Ranges | None:
    """Return the characters of a class as ECMA-262 reads it; None: it is not read."""
    try:
        [(operator, argument)] = _parsed(piece)
    except UnreadError:
        return None
    return characters.read(str(operator), argument)


class _State(NamedTuple):
    kind: int
    then: tuple[int, ...]  # of a lookahead its own first state, and what follows
    ranges: Ranges = ()


class _Automaton:
    """The states of a pattern."""

    def __init__(self) -> None:
        self.steps_left = _MOST_STEPS
        self._states: list[_State] = []
        self._levels: list[list[int]] = [
            []
        ]  # of states that take no character, by the lookaheads around them
        self._level = 0
        self.anything = self.state(_ONE_OF)

    def state(self, kind: int, *then: int, ranges: Ranges = ()) -> int:
        """Add a state, and return its number."""
        if len(self._states) > _MOST_STATES:
            raise UnreadError(_TOO_LONG)
        self._states.append(_State(kind, then, ranges))
        if kind != _LETTERS:
            self._levels[self._level].append(len(self._states) - 1)
        return len(self._states) - 1

    def searched(self, pattern: str) -> int:
        """Add a pattern that matches anywhere in a text; return its first state."""
        first = self._sequence(_parsed(pattern), self.anything)
        begin = self.state(_ONE_OF)
        self._states[begin] = _State(_ONE_OF, (first, self.state(_LETTERS, begin, ranges=ANY)))
        return begin

    def _look(self, steps: int) -> None:
        self.steps_left -= steps
        if self.steps_left < 0:
            raise UnreadError(_TOO_LONG)

    def _sequence(self, items: Any, then: int) -> int:
        self._look(1)
        for operator, argument in reversed(list(items)):
            then = self._part(str(operator), argument, then)
        return then

    def _part(self, operator: str, argument: Any, then: int) -> int:  # noqa: PLR0911 - a table
        match operator:
            case "BRANCH":
                return self.state(_ONE_OF, *(self._sequence(branch, then) for branch in argument[1]))
            case "SUBPATTERN":
                return self._sequence(argument[3], then)
            case "MAX_REPEAT" | "MIN_REPEAT":
                return self._repeated(argument, then)
            case "FAILURE":  # (?!)
                return self.state(_ONE_OF)
            case "ASSERT" | "ASSERT_NOT":
                return self._ahead(argument[1], then, is_wanted=operator == "ASSERT")
            case "AT":
                return self.state(_START if str(argument) == "AT_BEGINNING" else _END, then)
        ranges = characters.read(operator, argument)
        if ranges is not None:
            return self.state(_LETTERS, then, ranges=ranges)
        raise UnreadError(_NOT_READ)

    def _repeated(self, repeat: Any, then: int) -> int:
        least, most, items = repeat
        if str(most) == "MAXREPEAT":
            again = self.state(_ONE_OF)
            self._states[again] = _State(_ONE_OF, (then, self._sequence(items, again)))
            then = again
        else:
            for _ in range(most - least):
                then = self.state(_ONE_OF, then, self._sequence(items, then))
        for _ in range(least):
            then = self._sequence(items, then)
        return then

    def _ahead(self, items: Any, then: int, *, is_wanted: bool) -> int:
        self._level += 1
        self._levels += [[]] * (self._level == len(self._levels))
        first = self._sequence(items, self.anything)
        self._level -= 1
        return self.state(_AHEAD if is_wanted else _NOT_AHEAD, first, then)

    def classes(self) -> list[Ranges]:
        """Return all characters, in classes that each state takes whole or not at all."""
        known = {state.ranges for state in self._states if state.kind == _LETTERS}
        ends = {end for ranges in {ANY, *known} for low, high in ranges for end in (low, high + 1)}
        found: dict[tuple[bool, ...], list[tuple[int, int]]] = {}
        for low, behind in itertools.pairwise(sorted(ends)):
            if characters.has(ANY, low):
                takers = tuple(characters.has(ranges, low) for ranges in known)
                found.setdefault(takers, []).append((low, behind - 1))
        return [tuple(ranges) for ranges in found.values()]

    def read_backwards(self, first: int) -> tuple[list[list[int]], list[bool]]:
        """Return the automaton that reads texts from their end.

        Its states are numbered from 0, that at the end: for each where the classes lead, and whether the
        text that begins there is taken, as it is from the state `first` on.
        """
        takers = [
            [n for n, state in enumerate(self._states) if characters.has(state.ranges, one[0][0])]
            for one in self.classes()
        ]
        known = _Numbers([self._holding(first, None, b"")])
        table: list[list[int]] = []
        for holding, _ in known.found:
            found = [self._holding(first, takes, holding) for takes in takers]
            table.append([known.of(one) for one in found])
        return table, [is_taken for _, is_taken in known.found]

    def _holding(self, first: int, takes: Sequence[int] | None, behind: bytes) -> tuple[bytes, bool]:
        """Return which states hold of an end of a text, and whether `first` does if that is the whole text.

        `takes` are those that take its first character (None: it is empty), `behind` what holds behind that.
        """
        found = []
        for is_start in (False, True):
            now = bytearray(len(self._states))
            now[self.anything] = 1
            for number in takes or ():
                now[number] = behind[self._states[number].then[0]]
            for level in reversed(self._levels):  # what is negated is known then
                before = None
                while before != now:
                    before = now[:]
                    self._look(len(level))
                    for number in level:
                        kind, then, _ = self._states[number]
                        if kind == _ONE_OF:
                            now[number] |= any(now[one] for one in then)
                        elif kind in {_START, _END}:
                            now[number] = (is_start if kind == _START else takes is None) and now[then[0]]
                        else:
                            now[number] = now[then[0]] == (kind == _AHEAD) and now[then[1]]
            found.append(now)
        return bytes(found[0]), bool(found[1][first])


class _Numbers:
    """Numbers the states that are come to; `found` grows while it is gone through."""

    def __init__(self, found: list[Any]) -> None:
        self.found = found
        self._known = {one: number for number, one in enumerate(found)}

    def of(self, one: Any) -> int:
        if one not in self._known:
            if len(self.found) == _MOST_FOUND:
                raise UnreadError(_TOO_LONG)
            self._known[one] = len(self.found)
            self.found.append(one)
        return self._known[one]


def _smallest(made: _Automaton, first: int) -> tuple[list[dict[int, Ranges]], list[bool]]:
    """Return the smallest automaton: where each state's characters lead, and whether a text may end there."""
    table, taken = made.read_backwards(first)
    known = _Numbers([frozenset(state for state, is_taken in enumerate(taken) if is_taken)])
    found: list[dict[int, Ranges]] = []
    for here in known.found:
        found.append({})
        for letter, ranges in enumerate(made.classes()):
            if following := frozenset(state for state, row in enumerate(table) if row[letter] in here):
                there = known.of(following)
                found[-1][there] = (*found[-1].get(there, ()), *ranges)
    return found, [0 in here for here in known.found]


def _parsed(pattern: str) -> Any:
    """Return what Python's parser makes of a pattern that it reads as ECMA's is read."""
    pieces = [EMPTY_CLASSES.get(piece, piece) for piece in PIECE.findall(pattern)]
    plain = "".join(piece for piece in pieces if len(piece) == 1)
    if "\\" in _ESCAPE.sub("", pattern) or _UNREAD.search(plain):
        raise UnreadError(_NOT_READ)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what a class may mean in a later Python
            return _PARSER.parse("".join(pieces).replace("(?<", "(?P<"))
    except (re.error, OverflowError, RecursionError):
        raise UnreadError(_NOT_READ) from None
