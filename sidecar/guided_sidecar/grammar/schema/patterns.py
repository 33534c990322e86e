"""Regular expressions with lookahead, which libraries have no words for, and as ECMA-262 reads them.

A library ignores lookaround or refuses it. At the start of an anchored pattern it is a condition of its own:
`^(?=A)B` is A and B, `^(?!A)B` is B and not A. What else has lookaround is written without, see `automata`.
"""

import re
import warnings
from collections.abc import Iterator
from typing import Final

from guided_grammar.json_schema.subschemas import ROOT, JsonPath
from guided_sidecar.grammar.schema import automata, characters
from guided_sidecar.grammar.schema.automata import EMPTY_CLASSES
from guided_sidecar.grammar.schema.characters import PIECE
from guided_sidecar.grammar.schema.faults import fault, unsupported
from guided_sidecar.grammar.schema.limits import shown

_LOOKAROUND: Final = re.compile(r"\(\?(?:=|!|<=|<!)")
_AHEAD: Final = re.compile(r"\^\(\?([=!])")
_BACK_REFERENCE: Final = re.compile(r"\\(?:[1-9]|k<)")
# What is wrong in any dialect, in Python's words.
_BROKEN: Final = re.compile(
    r"missing \), |missing >|unbalanced paren|unterminated character set|nothing to repeat|"
    r"min repeat|multiple repeat|bad escape \(end|bad character range [^\\]-[^\\] |unexpected end"
)
# What libraries read otherwise than ECMA, outside of classes and within them.
_ECMAS: Final = EMPTY_CLASSES | {
    ".": characters.class_of(characters.others(characters.LINE_ENDS)),
    r"\s": characters.class_of(characters.SPACES),
    r"\S": characters.class_of(characters.others(characters.SPACES)),
}
_OTHERWISE_IN_CLASS: Final = re.compile(r"\\[sS]|&&|--|~~|(?<!^)\[")  # and operators of sets
_MOST_LOOKS: Final = 32
_MANY_CONTROLS: Final = 16


def broken(pattern: str) -> str | None:
    """Return why a text is no regular expression, neither ECMA's nor any library's; None: it may be one."""
    said = ""
    for text in (pattern, "".join(EMPTY_CLASSES.get(piece, piece) for piece in PIECE.findall(pattern))):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of what a regex may mean in a later Python
                re.compile(text)
        except re.error as error:
            said = str(error)
        except (OverflowError, RecursionError, ValueError):  # a number of thousands of digits, too
            return None
        else:
            return None
    return said if _BROKEN.search(said) else None


class PatternError(Exception):
    """A pattern has no meaning that a library enforces; the message says why."""


def conditions(pattern: str, path: JsonPath = ROOT) -> list[str]:
    """Return patterns without lookaround that together mean a pattern.

    Raises
    ------
    GuidedError
        grammar_unsupported, with the pattern's path: there are none. grammar_invalid: it is no pattern.
    """
    if (reason := broken(pattern)) is not None:
        raise fault(str(path), f"{shown(pattern)} is not a regular expression: {reason}")
    if _BACK_REFERENCE.search(pattern.replace("\\\\", "")):
        raise unsupported(path, "back references are not supported")
    try:
        return [_exact(each) for each in (_apart(pattern) if _LOOKAROUND.search(pattern) else [pattern])]
    except (PatternError, automata.UnreadError) as error:
        raise unsupported(path, str(error)) from error


def _apart(pattern: str) -> Iterator[str]:
    """Yield patterns without lookaround that together mean one."""
    if len(_LOOKAROUND.findall(pattern)) > _MOST_LOOKS:
        raise PatternError(f"more than {_MOST_LOOKS} lookaheads are not supported")
    has_choice = _has_top_level_choice(pattern)
    while not has_choice and (found := _AHEAD.match(pattern)) and (end := _closing(pattern[1:])) is not None:
        inner, rest = f"^(?:{pattern[4 : end + 1]})", pattern[end + 2 :]
        if rest.startswith(("*", "+", "?", "{")):
            break
        if found[1] == "!":
            yield automata.without_lookaround(f"^(?!{inner})")
        else:
            yield automata.without_lookaround(inner) if _LOOKAROUND.search(inner) else inner
        pattern = f"^{rest}"
    if pattern != "^":
        yield automata.without_lookaround(pattern) if _LOOKAROUND.search(pattern) else pattern


def _exact(pattern: str) -> str:
    """Return a pattern whose characters and classes a library reads as ECMA does."""
    return "".join(
        _exact_class(piece)
        if len(piece) > 1 and piece.startswith("[") and piece not in EMPTY_CLASSES
        else _ECMAS.get(piece, piece)
        for piece in PIECE.findall(pattern)
    )


def _exact_class(piece: str) -> str:
    """Return a class without spaces of Unicode's, operators of sets, and what llguidance takes for escapes.

    It takes all escapes of JSON for a class with control characters that excludes a quote or a backslash,
    those of both among them.
    """
    is_other = _OTHERWISE_IN_CLASS.search(piece) is not None
    ranges = automata.class_of(piece)
    if ranges is None:
        if is_other:
            raise PatternError("regex dialects differ on a character class in it; escape its punctuation")
        return piece
    is_wide = sum(characters.has(ranges, code) for code in range(32)) >= _MANY_CONTROLS
    if is_wide and not all(characters.has(ranges, ord(one)) for one in '"\\'):
        if not piece.startswith("[^"):
            raise PatternError(
                "a character class with control characters must contain the quote and the backslash, too"
            )
        return characters.class_of(characters.others([*characters.others(ranges), (0, 31)]))
    return characters.class_of(ranges) if is_other else piece


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
    for piece in PIECE.finditer(pattern):
        if len(character := piece[0]) == 1:
            level += (character == "(") - (character == ")")
            yield piece.start(), character, level
