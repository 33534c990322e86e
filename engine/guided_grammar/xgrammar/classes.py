r"""Classes of characters as xgrammar should write them.

- 0.2.7 misreads a negated class, and a range that ends within a lead byte of UTF-8: each is written as what
  it holds, by lead byte.
- No text in UTF-8 has a surrogate: a class that takes an encoded one takes three characters for whoever reads
  it, and counts one.
- Strings whose length it compiles are of `[^"\\\r\n]`, where tabs can be, which is no JSON. Here they have
  the characters that its plain strings have; escapes, which it could not count as one, stay out.
"""

import itertools
import json
from collections.abc import Iterator, Sequence
from typing import Any, Final

# An expression of a grammar's serialised form: its kind, how many numbers follow, these. Of a class, with or
# without a star, they are whether it is negated, then its ranges.
_CLASSES: Final = (1, 2)
_HEAD: Final = 3
_LOW, _HIGH = _SURROGATES = (0xD800, 0xDFFF)
_CONTROLS: Final = (0, 0x1F)
_CARET: Final = ord("^")
_LAST: Final = 0x10FFFF
# How many characters begin with one byte of UTF-8, up to which character; the first of three has fewer.
_LEAD_BYTES: Final = ((0x80, 0x7F), (0x40, 0x7FF), (0x800, 0xFFF), (0x1000, 0xFFFF), (0x40000, _LAST))
_OF_LENGTHS: Final = [34, 34, 92, 92, 13, 13, 10, 10]


def of_text(written: str, *, is_json: bool) -> str:
    """Return a grammar, in its serialised form, in which no class takes a surrogate.

    Parameters
    ----------
    is_json
        Whether strings with a length are to hold no control character. A tag's own EBNF in which the very
        same class stands has it so, too.
    """
    form: Any = json.loads(written)
    data = form["grammar_expr_data"]
    expressions = [data[start : start + 2 + data[start + 1]] for start in form["grammar_expr_indptr"]]
    changed = [_class(one, is_json=is_json) if one[0] in _CLASSES else one for one in expressions]
    if changed == expressions:
        return written
    form["grammar_expr_data"] = [number for expression in changed for number in expression]
    form["grammar_expr_indptr"] = [0, *itertools.accumulate(map(len, changed))][:-1]
    return json.dumps(form)


def _class(expression: Sequence[int], *, is_json: bool) -> list[int]:
    is_negated, ranges = expression[2], list(expression[_HEAD:])
    controls = _CONTROLS if is_json and ranges == _OF_LENGTHS else ()
    if is_negated:
        ranges = _gaps([*controls, *ranges, *_SURROGATES])
    else:
        ranges = _gaps([*_gaps(ranges), *_SURROGATES])
    ranges = [end for pair in zip(ranges[::2], ranges[1::2], strict=True) for end in _by_lead_byte(*pair)]
    if ranges[:1] == [_CARET]:  # a cached compile writes a class as a text, and reads that as negated
        ranges = [_CARET + 1, *ranges[1:]] if ranges[1] > _CARET else ranges[2:]
        ranges += [_CARET, _CARET]
    return [expression[0], 1 + len(ranges), 0, *ranges]


def _by_lead_byte(first: int, last: int) -> Iterator[int]:
    """Yield the ends of ranges that together hold these characters, of whole lead bytes or within one."""
    while first <= last:
        size, most = next((size, most) for size, most in _LEAD_BYTES if first <= most)
        most, rest = min(last, most), first % size
        end = first - rest + size - 1 if rest or first + size - 1 > most else most - (most + 1) % size
        yield from (first, min(end, most))
        first = min(end, most) + 1


def _gaps(ranges: Sequence[int]) -> list[int]:
    """Return the ranges of all characters that are in none of these."""
    gaps, free = [], 0
    for first, last in sorted(zip(ranges[::2], ranges[1::2], strict=True)):
        if free < first:
            gaps += [free, first - 1]
        free = max(free, last + 1)
    return [*gaps, free, _LAST] if free <= _LAST else gaps
