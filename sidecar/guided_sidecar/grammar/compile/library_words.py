"""What a library says of a grammar that it refuses, in words for whoever wrote the grammar.

A library's message may name its own parts, count lines in a text that was written for it, or quote the whole
grammar before it comes to the reason.
"""

import re
from typing import Final

_MOST_CHARACTERS: Final = 200
_BEGIN: Final = 60  # of a longer message; its end tells more
_LOOKAROUND: Final = "lookaround, word boundaries and anchors of lines are not supported"
ALTERNATIVES: Final = "more alternatives are open at one place of a text than are followed"
_PLAIN: Final = tuple(
    (re.compile(written, re.DOTALL), meant)
    for written, meant in (
        (r"lookarounds not supported yet; \w+ in regex.*", _LOOKAROUND),
        (r"look-around, including look-ahead and look-behind, is not supported", _LOOKAROUND),
        (r"Failed to generate regex for integer range:.*", "no integer is within its bounds"),
        (r"lexer error: too many expressions constructed", "its repetitions are too many"),
        (r"Unable to determine if regex is empty: .*", "its patterns and lengths together are too large"),
        (r"too many digits: \d+", "a number in it has too many digits"),
        (r"regex parse error: .*\^ error: ", ""),
        (r"(?:Parser Error: )?(?:Current row has \d+ items|Too many items).*", ALTERNATIVES),
        (
            r"panic: assertion failed: grammar\.symbols\.len.*",
            "it has more than 65,000 parts; maxItems counts",
        ),
        (r"panic: (.{0,80}).*", r"\1"),
        (r"Failed to convert the grammar from GBNF to Lark: ", ""),
        (r"Invalid structural tag error: ", ""),
        (r"Token string resolution requires tokenizer_info", "no special token has this name"),
        (r"(?:not enough|too many) values to unpack.*", "each of the rules is a list of a text and a format"),
        (r"Check failed: \(.*\) is false: ", ""),
        (r"; following special tokens are available:.*", ""),
        (r" \d+ \| .*", ""),  # a line of a text, which may be one that was written for the library
        (r"^at 1\(\d+\): invalid regex .* error: ", ""),
        (r"^at 1\(\d+\): invalid regex .* \(in regex\): ", ""),
        (r"(\S{20})\S{20,}(\S{10})", r"\1…\2"),
        (r"\b(?:at )?(\d+)\((\d+)\): ", r"line \1, column \2: "),
    )
)


def plain(said: str) -> str:
    """Return a library's words without what says nothing to others, on at most 200 characters."""
    for written, meant in _PLAIN:
        said = written.sub(meant, said)
    if len(said) <= _MOST_CHARACTERS:
        return said
    return f"{said[:_BEGIN]}…{said[_BEGIN - _MOST_CHARACTERS :]}"
