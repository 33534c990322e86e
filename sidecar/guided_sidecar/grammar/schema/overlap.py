"""Whether a text can match two patterns: both are read as automata, and walked together.

What a pattern says is read as ECMA's, or as more than that where readers differ, as of those beyond ASCII. So
where no text is found that matches both, there is none.
"""

import functools
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

_DEEPEST: Final = 40
_MOST_STATES: Final = 2048
# What readers agree on: other escapes are letters to some, and some take sets for operands.
_ESCAPED: Final = r"\\(?:x[0-9a-fA-F]{2}|u(?![dD][89a-fA-F])[0-9a-fA-F]{4}|[dDwWsSnrtfv]|[^\w])"
_ESCAPE: Final = re.compile(_ESCAPED)
_CLASS: Final = re.compile(rf"\[\^?(?:(?!--|&&|~~|\|\|)[^\]\\\[]|{_ESCAPED})*\]")
_OF_MANY: Final = re.compile(r"\\[dDwWsS]")  # which of those beyond ASCII, readers differ in
_PLAIN_CLASS: Final = re.compile(r"\[[\x00-\x5b\x5e-\x7f]+\]")  # of ASCII alone, without an escape
_COUNT: Final = re.compile(r"\{(\d{1,4})(,(\d{1,4})?)?\}")
_REPEATS: Final = {"*": (0, None), "+": (1, None), "?": (0, 1)}
_ASCII: Final = [*map(chr, range(128))]
_START, _INSIDE, _ENDED, _EMPTY = range(4)  # where in a text a walk is; at both ends of an empty one

Build = Callable[["_Automaton", int], int]  # makes a part, which goes on to a state; its first state


class UnreadError(Exception):
    """A pattern, or a walk, is more than is looked at."""


def can_meet(one: str, other: str, steps: int) -> tuple[bool, int]:
    """Return whether a text can match both patterns, True also where that is not told, and the steps left."""
    letters = [*_ASCII, *sorted({letter for letter in one + other if letter > "\x7f"})]
    try:
        found = [_Automaton(_read(pattern), letters) for pattern in (one, other)]
    except (UnreadError, re.error, RecursionError):
        return True, steps
    return _walk(found[0], found[1], steps)


class _Automaton:
    """The states of a pattern that is searched for.

    Attributes
    ----------
    ways
        Of each state: the letters (a bit for each, the last for all others) with the state behind them; None
        for no letter, `^` and `$` for the ends of a text.
    """

    def __init__(self, build: Build, letters: Sequence[str]) -> None:
        self.letters = letters
        self.every = (1 << len(letters) + 1) - 1
        self.ways: list[list[tuple[int | str | None, int]]] = []
        self.last = self.state()
        self.ways[self.last].append((self.every, self.last))
        self.first = self.state()
        self.ways[self.first] += [(self.every, self.first), (None, build(self, self.last))]

    def state(self, *ways: tuple[int | str | None, int]) -> int:
        if len(self.ways) >= _MOST_STATES:
            raise UnreadError
        self.ways.append([*ways])
        return len(self.ways) - 1


def _walk(one: _Automaton, other: _Automaton, steps: int) -> tuple[bool, int]:
    begin = (one.first, other.first, _START)
    seen, stack = {begin}, [begin]
    while stack:
        first, second, where = stack.pop()
        if first == one.last and second == other.last:
            return True, steps
        for following in _following(one.ways[first], other.ways[second], first, second, where):
            steps -= 1
            if steps <= 0:
                return True, 0
            if following not in seen:
                seen.add(following)
                stack.append(following)
    return False, steps


def _following(
    ways: Sequence[tuple[Any, int]], others: Sequence[tuple[Any, int]], first: int, second: int, where: int
) -> Iterator[tuple[int, int, int]]:
    for letters, state in ways:
        if not isinstance(letters, int):
            yield from ((state, second, then) for then in _passed(letters, where))
        elif where in (_START, _INSIDE):
            for also, there in others:
                if isinstance(also, int) and letters & also:
                    yield state, there, _INSIDE
    for letters, state in others:
        if not isinstance(letters, int):
            yield from ((first, state, then) for then in _passed(letters, where))


def _passed(anchor: str | None, where: int) -> list[int]:
    """Return where in the text a walk is behind an anchor; nothing: it may not be passed."""
    if anchor == "^":
        return [where] if where in (_START, _EMPTY) else []
    if anchor == "$":
        return [{_START: _EMPTY, _INSIDE: _ENDED}.get(where, where)]
    return [where]


def _read(pattern: str) -> Build:
    build, end = _choice(pattern, 0, 0)
    if end != len(pattern):
        raise UnreadError
    return build


def _choice(pattern: str, index: int, depth: int) -> tuple[Build, int]:
    if depth > _DEEPEST:
        raise UnreadError
    branches = []
    while True:
        branch, index = _sequence(pattern, index, depth)
        branches.append(branch)
        if pattern[index : index + 1] != "|":
            return (branches[0] if len(branches) == 1 else functools.partial(_any_of, branches)), index
        index += 1


def _sequence(pattern: str, index: int, depth: int) -> tuple[Build, int]:
    parts: list[Build] = []
    while index < len(pattern) and pattern[index] not in "|)":
        part, index = _atom(pattern, index, depth)
        repeat, index = _repeat(pattern, index)
        parts.append(part if repeat is None else functools.partial(_repeated, part, *repeat))
    return functools.partial(_all_of, parts), index


def _atom(pattern: str, index: int, depth: int) -> tuple[Build, int]:
    letter = pattern[index]
    if letter == "(":
        start = index + 3 if pattern.startswith("(?:", index) else index + 1
        if pattern.startswith("?", start):
            raise UnreadError
        part, end = _choice(pattern, start, depth + 1)
        if pattern[end : end + 1] != ")":
            raise UnreadError
        return part, end + 1
    if letter in "^$":
        return functools.partial(_anchor, letter), index + 1
    if letter in "[\\":
        found = (_CLASS if letter == "[" else _ESCAPE).match(pattern, index)
        if found is None:
            raise UnreadError
        return functools.partial(_letters, found[0]), found.end()
    if letter in "*+?{}]":
        raise UnreadError
    return functools.partial(_letters, letter), index + 1


def _repeat(pattern: str, index: int) -> tuple[tuple[int, int | None] | None, int]:
    """Return how often what is before an index may come; a `?` behind it changes nothing of that."""
    found: tuple[int, int | None] | None = _REPEATS.get(pattern[index : index + 1])
    end = index + 1
    if found is None:
        counted = _COUNT.match(pattern, index)
        if counted is None:
            return None, index
        least = int(counted[1])
        most = least if counted[2] is None else int(counted[3]) if counted[3] else None
        found, end = (least, most), counted.end()
    return found, end + (pattern[end : end + 1] == "?")


def _letters(text: str, made: _Automaton, then: int) -> int:
    return made.state((_taken(text, tuple(made.letters)), then))


@functools.lru_cache(256)
def _taken(text: str, letters: tuple[str, ...]) -> int:
    """Return the letters that a class, an escape or a letter stands for, by any reader."""
    if len(text) == 1 and text != ".":
        return 1 << letters.index(text)
    takes = [re.compile(text, flags | re.DOTALL).fullmatch for flags in (re.ASCII, re.UNICODE)]
    is_taken = [any(take(letter) for take in takes) for letter in letters]
    if _OF_MANY.search(text):
        is_taken[len(_ASCII) :] = [True] * (len(letters) - len(_ASCII))
    found = sum(1 << place for place, is_one in enumerate(is_taken) if is_one)
    return found if _PLAIN_CLASS.fullmatch(text) else found | 1 << len(letters)


def _anchor(anchor: str, made: _Automaton, then: int) -> int:
    return made.state((anchor, then))


def _any_of(branches: Sequence[Build], made: _Automaton, then: int) -> int:
    return made.state(*((None, branch(made, then)) for branch in branches))


def _all_of(parts: Sequence[Build], made: _Automaton, then: int) -> int:
    for part in reversed(parts):
        then = part(made, then)
    return then


def _repeated(part: Build, least: int, most: int | None, made: _Automaton, then: int) -> int:
    if most is None:
        again = made.state((None, then))
        made.ways[again].append((None, part(made, again)))
        then = again
    for _ in range((most or least) - least):
        then = made.state((None, then), (None, part(made, then)))
    for _ in range(least):
        then = made.state((None, part(made, then)))
    return then
