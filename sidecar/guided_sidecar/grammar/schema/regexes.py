"""A deterministic automaton as a pattern: its states are taken away one by one."""

import functools
import itertools
from collections.abc import Sequence

from guided_sidecar.grammar.schema import characters
from guided_sidecar.grammar.schema.characters import PIECE, Ranges

Ways = dict[tuple[int, int], list[str]]  # from one state to another, as alternatives


class TooLongError(Exception):
    """The pattern would be too long."""


def written(table: list[dict[int, Ranges]], may_end: list[bool], *, most: int) -> str:
    """Return the pattern of the texts that an automaton takes.

    Parameters
    ----------
    table, may_end
        Of each state, from 0 on, which is the first, where characters lead, and whether a text may end there.
    most
        Characters of the pattern.

    Raises
    ------
    TooLongError
        It has more.
    """
    begin, end = -1, len(table)
    ways: Ways = {(begin, 0): [""]}
    for state, row in enumerate(table):
        ways |= {(state, there): [characters.class_of(ranges)] for there, ranges in row.items()}
        ways |= {(state, end): [""]} if may_end[state] else {}
    left = set(range(len(table)))
    while left:
        state = min(left, key=functools.partial(_cost, ways))
        left.remove(state)
        around = _group(ways.pop((state, state), [""]), "*")
        before = {one: ways.pop((one, there)) for one, there in [*ways] if there == state}
        behind = {there: ways.pop((one, there)) for one, there in [*ways] if one == state}
        for (one, into), (there, out) in itertools.product(before.items(), behind.items()):
            known = ways.setdefault((one, there), [])
            known.append(_group(into) + around + _group(out))
            if sum(map(len, known)) > most:
                raise TooLongError
    return _group(ways.get((begin, end), [r"[^\s\S]"]))


def _cost(ways: Ways, state: int) -> int:
    sizes = [[len(_group(found)) for ends, found in ways.items() if ends[side] == state] for side in (0, 1)]
    return sum(sizes[0]) * len(sizes[1]) + sum(sizes[1]) * len(sizes[0])


def _group(ways: Sequence[str], repeat: str = "") -> str:
    """Return alternatives as one part of a sequence."""
    found = [one for one in ways if one]
    if not found:
        return ""
    mark = repeat or "?" * (len(found) < len(ways))
    if len(found) == 1 and (not mark or PIECE.fullmatch(found[0])):
        return f"{found[0]}{mark}"
    return f"(?:{'|'.join(found)}){mark}"
