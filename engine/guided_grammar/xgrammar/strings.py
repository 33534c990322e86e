r"""Where an xgrammar matcher stands inside a plain JSON string, and its mask stays what it was.

Inside a free string one mask takes xgrammar 60 to 200 microseconds: every token with a quote in it is parsed
again, at each position, against whatever may follow the string. That work is the same until the string ends.

The grammar of every JSON Schema has one rule for the body of a plain string, where `S` is the rule itself:

    S ::= "\"" | [^\0-\x1f\"\\\r\n\ud800-\udfff] S | "\\" basic_escape S

Let the matcher's only state be at the start of S. After one character other than a quote, a backslash or a
control character it is at the start of the S that ends the first one: the same rule, and after it the same
may follow, because S stands last. So after a token of such whole characters the same tokens are allowed as
before, and a matcher that was not told of it stands where it would. The state is read from the matcher's own
description; that it is S's start, not within a character, shows in the mask: it allows `z`, which no other
position of S takes.
"""

import re
from dataclasses import dataclass
from typing import Any, Final

from guided_grammar.masks import Bitmask, allows

_BODY: Final = re.compile(
    r'\(\("\\""\) \| \(\[\^\\0-\\x1f\\"\\\\\\r\\n(?:\\ud800-\\udfff)?\] (\w+)\) '
    r'\| \("\\\\" basic_escape \1\)\)( \(=.*\))?$'
)
_ESCAPE: Final = re.compile(
    r'basic_escape ::= \(\(\[\\"\\\\/bfnrt\]\) \| \("u"( \[A-Fa-f0-9\]){4}\)\)( \(=.*\))?$', re.MULTILINE
)
_RULE: Final = re.compile(r"^(\w+) ::= (.*)$", re.MULTILINE)
_STATE: Final = "ParserState("
# Whole characters in UTF-8, none of them a control character, a quote or a backslash.
_PLAIN: Final = re.compile(
    rb"(?:[ !#-\[\]-\x7f]|[\xc2-\xdf][\x80-\xbf]|\xe0[\xa0-\xbf][\x80-\xbf]"
    rb"|[\xe1-\xec\xee\xef][\x80-\xbf]{2}|\xed[\x80-\x9f][\x80-\xbf]"
    rb"|\xf0[\x90-\xbf][\x80-\xbf]{2}|[\xf1-\xf3][\x80-\xbf]{3}|\xf4[\x80-\x8f][\x80-\xbf]{2})+"
)
_PROBE: Final = b"z"


class PlainTokens:
    """Which tokens hold nothing but characters that a JSON string may hold as they are.

    Parameters
    ----------
    tokenizer_info
        xgrammar's.
    """

    def __init__(self, tokenizer_info: Any) -> None:
        special = set(tokenizer_info.special_token_ids) | set(tokenizer_info.stop_token_ids)
        self.texts: list[bytes] = tokenizer_info.decoded_vocab  # made anew at each call
        texts = self.texts
        plain = [token for token, text in enumerate(texts) if _PLAIN.fullmatch(text) and token not in special]
        self.tokens = frozenset(plain)
        self.probe = next((token for token in plain if texts[token] == _PROBE), None)


@dataclass(frozen=True, slots=True)
class PlainStrings:
    """The plain strings of one compiled grammar."""

    plain: PlainTokens
    state: str  # how the description of a matcher's states begins in the rule of a string's body

    @classmethod
    def of(cls, compiled: Any, plain: PlainTokens) -> "PlainStrings | None":
        """Return the plain strings of a compiled grammar.

        None if it has none, or the tokenizer has no token `z` to probe a mask with.
        """
        text = str(compiled.grammar)
        if plain.probe is None or _ESCAPE.search(text) is None:
            return None
        for number, (name, body) in enumerate(_RULE.findall(text)):
            found = _BODY.match(body)
            if found is not None and found.group(1) == name:
                return cls(plain, f"{_STATE}rule_id={number},")
        return None

    def holds(self, native: Any, mask: Bitmask) -> bool:
        """Return whether a matcher stands between two characters of a plain string.

        Parameters
        ----------
        native
            An xgrammar.GrammarMatcher.
        mask
            The mask of its next token: [ceil(vocabulary / 32)] int32.
        """
        probe = self.plain.probe
        if probe is None or not allows(mask, probe):
            return False
        states: str = native._debug_print_internal_state()  # noqa: SLF001 - nothing else tells; contract test
        return states.count(_STATE) == 1 and self.state in states
