r"""What xgrammar 0.2.8 writes of a schema, as it should be: classes of characters, and names of properties.

- No text in UTF-8 has a surrogate: a class that takes an encoded one takes three characters for whoever reads
  it, and counts one.
- Strings whose length it compiles are of `[^"\\\r\n]`, where tabs can be, which is no JSON. Here they have
  the characters that its plain strings have; escapes, which it could not count as one, stay out.
- Beside properties with names, another name is told from these letter by letter (`..._addl_key_1` and so
  on). While it may still become one it has no escapes, by which `a` were not `a`; and no quote is a letter.
"""

import itertools
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

# An expression of a grammar's serialised form: its kind, how many numbers follow, these. Of a class, they are
# whether it is negated, then its ranges; of a sequence and of alternatives, other expressions.
_TEXT: Final = 0
_CLASS: Final = 1
_SEQUENCE: Final = 5
_ALTERNATIVES: Final = 6
_OTHER_NAME: Final = re.compile(r"_addl_key_[0-9]+$")
_HEAD: Final = 3
_ESCAPED: Final = (ord('"'), ord("\\"))
_SURROGATES: Final = [0xD800, 0xDFFF]
_CONTROLS: Final = [0, 0x1F]
_OF_LENGTHS: Final = [34, 34, 92, 92, 13, 13, 10, 10]


def of_text(written: str, *, is_json: bool) -> str:
    """Return a grammar, in its serialised form, in which no class takes a surrogate.

    Parameters
    ----------
    is_json
        Whether strings with a length are to hold no control character, and other names no escapes. A tag's
        own EBNF in which the very same class, or a rule of such a name, stands has them so, too.
    """
    form: Any = json.loads(written)
    data = form["grammar_expr_data"]
    expressions = [data[start : start + 2 + data[start + 1]] for start in form["grammar_expr_indptr"]]
    changed = [_class(one, is_json=is_json) if one[0] == _CLASS else one for one in expressions]
    for body in _of_other_names(form["rules"]) if is_json else ():
        changed[body] = _without_escapes(changed[body], expressions)
    if changed == expressions:
        return written
    form["grammar_expr_data"] = [number for expression in changed for number in expression]
    form["grammar_expr_indptr"] = [0, *itertools.accumulate(map(len, changed))][:-1]
    return json.dumps(form)


def _of_other_names(rules: Iterable[Sequence[Any]]) -> Iterator[int]:
    """Yield the bodies of rules that tell a name from those of properties."""
    return (body for name, body, *_ in rules if _OTHER_NAME.search(name))


def _without_escapes(body: Sequence[int], expressions: Sequence[Sequence[int]]) -> list[int]:
    """Return alternatives without those that go on after what JSON writes with a backslash."""

    def stays(alternative: int) -> bool:
        kind, _, *parts = expressions[alternative]
        if kind != _SEQUENCE or len(parts) == 1:
            return True
        of_text, _, first, *_ = expressions[parts[0]]
        return of_text != _TEXT or (first not in _ESCAPED and first > _CONTROLS[1])

    if body[0] != _ALTERNATIVES:
        return list(body)
    kept = list(filter(stays, body[2:]))
    return [_ALTERNATIVES, len(kept), *kept]


def _class(expression: Sequence[int], *, is_json: bool) -> list[int]:
    is_negated, ranges = expression[2], list(expression[_HEAD:])
    if is_negated:
        controls = _CONTROLS if is_json and ranges == _OF_LENGTHS else []
        ranges = [*controls, *ranges, *_SURROGATES]
    else:
        pairs = zip(ranges[::2], ranges[1::2], strict=True)
        ranges = [end for first, last in pairs for end in _apart(first, last)]
    return [_CLASS, 1 + len(ranges), is_negated, *ranges]


def _apart(first: int, last: int) -> list[int]:
    """Return a range without the surrogates in it, as one or two of them."""
    low, high = _SURROGATES
    if last < low or first > high:
        return [first, last]
    below = [first, low - 1] if first < low else []
    return below + ([high + 1, last] if last > high else [])
