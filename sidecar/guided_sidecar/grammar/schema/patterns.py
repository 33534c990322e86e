"""Regular expressions that say what a library has no words for: not one of these texts, and lookahead.

A library ignores lookaround or refuses it. At the start of an anchored pattern it is a condition of its own:
`^(?=A)B` is A and B, `^(?!A)B` is B and not A, which has a pattern where A is a list of texts.
"""

import re
import warnings
from collections.abc import Collection, Iterator, Sequence
from typing import Any, Final

_LOOKAROUND: Final = re.compile(r"\(\?(?:=|!|<=|<!)")
_BACK_REFERENCE: Final = re.compile(r"\\(?:[1-9]|k<)")
_SPECIAL: Final = re.compile(r"[\\^$.|?*+()\[\]{}/-]")
_PLAIN: Final = re.compile(r"(?:[^\\^$.|?*+()\[\]{}]|\\[^\w\s])*")
_ESCAPE: Final = re.compile(r"\\(.)")
# What Python's regexes have in other words than ECMA's.
_ECMA: Final = tuple(
    (re.compile(written), meant)
    for written, meant in (
        (r"\(\?<(?![=!])", "(?P<"),
        (r"\\[pP]\{[^{}]*\}", r"\\w"),
        (r"\\(?:c[A-Za-z]|u\{[0-9a-fA-F]+\})", "c"),
        (r"\[\^\]", "."),
        (r"\[\]", "(?!)"),
    )
)
# What Python alone refuses.
_PYTHONS_LIMITS: Final = re.compile(
    r"look-behind requires|missing \{|repetition number is too large|bad escape \\|undefined character name|"
    r"bad character range (?:\\[dDsSwW]-|.*-\\[dDsSwW])|missing (?:-, )?:|unknown (?:flag|extension)|"
    r"global flags|group reference|open group|redefinition"
)
_AT_START: Final = "lookaround is enforced at the start of a pattern alone, behind ^"
# One character of a class, or several that an escape stands for.
_IN_CLASS: Final = re.compile(
    r"\\(?:x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|[uUpP]\{[^}]*\}|c[A-Za-z]|.)|.", re.DOTALL
)
# An escape, a class, or one character.
_PIECE: Final = re.compile(r"\\.|\[(?:\\.|[^\]\\])*\]|.", re.DOTALL)
_OPERATORS: Final = ("&&", "--", "~~", "[")  # of sets of characters, to a library
_ANY: Final = r"[\s\S]"
_EMPTY_CLASSES: Final = {"[]": r"[^\s\S]", "[^]": _ANY}
_CONTROLS: Final = "".join(map(chr, range(32)))
_MANY_CONTROLS: Final = 16
_MOST_CHARACTERS: Final = 1 << 14
_ENDS, _BEGUN = "ends", "begun"  # in a tree of characters: of a text, of a beginning


def other_than(texts: Collection[str], beginnings: Collection[str] = ()) -> str | None:
    """Return a pattern of all texts but these, and those that begin so; None: none, or too long."""
    if sum(map(len, (*texts, *beginnings))) > _MOST_CHARACTERS or "" in beginnings:
        return None
    root: dict[str, Any] = {}
    for text, mark in [*((each, _ENDS) for each in texts), *((each, _BEGUN) for each in beginnings)]:
        node = root
        for character in text:
            node = node.setdefault(character, {})
        node[mark] = {}
    return f"^{_others(root)}$"


def _others(root: dict[str, Any]) -> str:
    """Return the pattern of what a tree of characters does not hold."""
    made: dict[int, str] = {}
    stack = [(root, False)]
    while stack:
        node, is_entered = stack.pop()
        following = [character for character in node if character not in (_ENDS, _BEGUN)]
        if not is_entered:
            stack.append((node, True))
            stack += [(node[character], False) for character in following]
            continue
        if _BEGUN in node:
            made[id(node)] = ""  # nothing may begin so
            continue
        ways = [] if _ENDS in node else [""]
        ways += [_escaped(c) + made[id(node[c])] for c in following if made[id(node[c])]]
        other = _exact(f"[^{''.join(map(_escaped, following))}]") if following else _ANY
        ways.append(f"{other}{_ANY}*")
        made[id(node)] = f"(?:{'|'.join(ways)})"
    return made[id(root)]


def _escaped(character: str) -> str:
    return f"\\{character}" if _SPECIAL.match(character) else character


def texts(pattern: str) -> frozenset[str] | None:
    """Return the texts that a pattern matches if it lists them, as `^(a|b)$` does, else None."""
    found = re.fullmatch(r"\^(?:\((?:\?:)?(.*)\)|((?:[^|\\]|\\.)*))\$", pattern, re.DOTALL)
    return _listed(found[1] if found[1] is not None else found[2]) if found else None


def beginnings(pattern: str) -> frozenset[str] | None:
    """Return the texts with which a text must begin to match a pattern, if it lists them as `^(a|b)` does."""
    return texts(f"{pattern}$")


def without(pattern: str) -> str | None:
    """Return a pattern of all texts that another does not match; None: it lists no texts or beginnings."""
    if (listed := texts(pattern)) is not None:
        return other_than(listed)
    begun = beginnings(pattern)
    return None if begun is None else other_than((), begun)


def _listed(alternatives: str) -> frozenset[str] | None:
    parts = re.split(r"(?<!\\)\|", alternatives)
    if not all(_PLAIN.fullmatch(part) for part in parts):
        return None
    return frozenset(_ESCAPE.sub(r"\1", part) for part in parts)


def broken(pattern: str) -> str | None:
    """Return why a text is no regular expression, neither ECMA's nor any library's; None: it may be one."""
    if _fault(pattern) is None:
        return None
    for written, meant in _ECMA:
        pattern = written.sub(meant, pattern)
    said = _fault(pattern)
    return None if said is None or _PYTHONS_LIMITS.search(said) else said


def _fault(pattern: str) -> str | None:
    """Return what is wrong with a regular expression of Python's."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what a regex may mean in a later Python
            re.compile(pattern)
    except re.error as error:
        return str(error)
    except (OverflowError, RecursionError, ValueError):  # a number of thousands of digits, too
        return None
    return None


class PatternError(Exception):
    """A pattern has no meaning that a library enforces; the message says why."""


def conditions(pattern: str) -> list[str]:
    """Return patterns without lookaround that together mean a pattern.

    Raises
    ------
    PatternError
        There are none.
    """
    if _BACK_REFERENCE.search(pattern.replace("\\\\", "")):
        raise PatternError("a back reference cannot be enforced")
    pattern = _exact(pattern)
    if not _LOOKAROUND.search(pattern):
        return [pattern]
    if not pattern.startswith("^"):
        raise PatternError(_AT_START)
    wanted: list[str] = []
    rest = pattern[1:]
    while rest.startswith(("(?=", "(?!")):
        end = _closing(rest)
        if end is None:
            raise PatternError("its parentheses do not match")
        inner, is_negated, rest = rest[3:end], rest[2] == "!", rest[end + 1 :]
        wanted.append(_without(inner) if is_negated else f"^(?:{inner})")
    if _LOOKAROUND.search("".join(wanted) + rest):
        raise PatternError(_AT_START)
    if _has_top_level_choice(rest):
        raise PatternError("lookaround before a choice is not enforced: put the choice in parentheses")
    return [*wanted, *([f"^{rest}"] if rest else [])]


def _exact(pattern: str) -> str:
    """Return a pattern whose classes of characters a library reads as ECMA does.

    Without what would be operators of sets, and without control characters where a class excludes a quote
    or a backslash: llguidance takes all escapes of JSON for such a class, those of both among them.
    """
    return "".join(
        _without_controls(_without_operators(piece)) if piece.startswith("[") and len(piece) > 1 else piece
        for piece in _PIECE.findall(pattern)
    )


def _without_operators(characters: str) -> str:
    """Return a class in which a library finds no operator of sets: ECMA has none."""
    if characters in _EMPTY_CLASSES:
        return _EMPTY_CLASSES[characters]
    start = "[^" if characters.startswith("[^") else "["
    found = _IN_CLASS.findall(characters[len(start) : -1])
    alone = "".join(one if len(one) == 1 else " " for one in found)
    operators = {operator[0] for operator in _OPERATORS if operator in alone}
    return f"{start}{''.join(_of_class(found, operators))}]" if operators else characters


def _of_class(found: Sequence[str], plain: Collection[str]) -> Iterator[str]:
    """Yield what stands in a class, characters and ranges, with a backslash before what is `plain`."""
    index = 0
    while index < len(found):
        is_range = index + 2 < len(found) and found[index + 1] == "-"
        ends = [found[index], found[index + 2]] if is_range else [found[index]]
        yield "-".join(f"\\{one}" if one in plain else one for one in ends)
        index += 3 if is_range else 1


def _without_controls(characters: str) -> str:
    """Return a class of characters as llguidance reads it rightly."""
    try:
        takes = re.compile(characters).fullmatch
    except re.error:
        return characters
    if all(map(takes, '"\\')) or sum(takes(one) is not None for one in _CONTROLS) < _MANY_CONTROLS:
        return characters
    if not characters.startswith("[^"):
        raise PatternError(
            "a class with control characters, and without a quote or a backslash, is not enforced"
        )
    return f"{characters[:-1]}\\x00-\\x1f]"


def _without(inner: str) -> str:
    """Return the pattern of what `(?!inner)` lets through at the start of a text."""
    pattern = without(f"^(?:{inner})" if _has_top_level_choice(inner) else f"^{inner}")
    if pattern is None:
        raise PatternError("(?!...) is enforced for a list of texts alone")
    return pattern


def _closing(pattern: str) -> int | None:
    """Return where the parenthesis that a pattern begins with is closed."""
    return next(
        (index for index, character, level in _outside(pattern) if character == ")" and level == 0), None
    )


def _has_top_level_choice(pattern: str) -> bool:
    return any(character == "|" and level == 0 for _, character, level in _outside(pattern))


def _outside(pattern: str) -> Iterator[tuple[int, str, int]]:
    """Yield what is no escape and in no class, with its index and how deep in parentheses it leaves us."""
    level = 0
    for piece in _PIECE.finditer(pattern):
        if len(character := piece[0]) == 1:
            level += (character == "(") - (character == ")")
            yield piece.start(), character, level
