"""The formats of the specification: as a pattern, by a library's own word, or refused.

A library does not know some of them, or reads others than the next one does: days that a month does not
have, letters of either case, raw control characters. The specification calls other names annotations, as
OpenAPI's `int32` and pydantic's `password`.
"""

import string
from typing import Final

LIBRARYS: Final = frozenset(["duration", "email", "ipv4", "ipv6", "uri", "uuid"])
# In ASCII alone: what is one of these is one of those.
IN_ASCII: Final = {"idn-email": "email", "idn-hostname": "hostname"}
# No lower case, no leap seconds; of hosts and regular expressions, what the patterns below say.
NARROWED: Final = frozenset([*IN_ASCII, "date-time", "hostname", "regex", "time"])
_LEAP_YEAR: Final = "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)"
_DAY: Final = (
    "(?:[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)"
    f"|02-(?:0[1-9]|1[0-9]|2[0-8]))|{_LEAP_YEAR}-02-29)"
)
_HOUR: Final = "(?:[01][0-9]|2[0-3])"
_TIME: Final = f"{_HOUR}:[0-5][0-9]:[0-5][0-9](?:\\.[0-9]+)?(?:Z|[+-]{_HOUR}:[0-5][0-9])"
# Of at most 63 characters each, and 253 together with the dots: six of 41 are always that. Hyphens in third
# and fourth place are IDNA's alone.
_END: Final = "[A-Za-z0-9]"
_IN_LABEL: Final = "[A-Za-z0-9-]"
_LONG_LABEL: Final = f"(?:{_END}{_IN_LABEL}|-{_END}){_IN_LABEL}{{0,36}}{_END}"
_LABEL: Final = f"{_END}(?:{_IN_LABEL}?{_END}|{_IN_LABEL}(?:{_IN_LABEL}{_END}|{_LONG_LABEL}))?"
_POINTER: Final = "(?:/(?:[^~/]|~[01])*)*"

# RFC 3986 and 3987; RFC 6570, without its reserved operators.
_HEX: Final = "%[0-9A-Fa-f]{2}"
_UNRESERVED: Final = "A-Za-z0-9._~-"
_DELIMITERS: Final = "!$&'()*+,;="
_PLANES: Final = "".join(f"{chr(plane << 16)}-{chr((plane << 16) + 0xFFFD)}" for plane in range(1, 14))
_LETTERS: Final = f"\xa0-\ud7ff\uf900-\ufdcf\ufdf0-\uffef{_PLANES}\U000e1000-\U000efffd"  # ucschar
_PRIVATE: Final = "\ue000-\uf8ff\U000f0000-\U000ffffd\U00100000-\U0010fffd"  # iprivate
_BYTE: Final = "(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_SHORT: Final = "[0-9A-Fa-f]{1,4}"
_LAST: Final = f"(?:{_SHORT}:{_SHORT}|{_BYTE}(?:\\.{_BYTE}){{3}})"


def _address() -> str:
    """Return what an IPv6 address is: eight parts, or fewer around one `::`."""
    ways = [f"(?:{_SHORT}:){{6}}{_LAST}"]
    for before in range(8):
        behind = [f"(?:{_SHORT}:){{{5 - before}}}{_LAST}", _SHORT, ""][max(0, before - 5)]
        ways.append(f"{f'(?:(?:{_SHORT}:){{0,{before - 1}}}{_SHORT})?' if before else ''}::{behind}")
    return f"(?:{'|'.join(ways)})"


def _reference(letters: str, private: str, *, needs_scheme: bool) -> str:
    """Return what a URI is, or a reference to one, with further letters, and such as queries alone have."""
    first = f"(?:[{letters}{_DELIMITERS}@{_UNRESERVED}]|{_HEX})"
    char = f"(?:[:{letters}{_DELIMITERS}@{_UNRESERVED}]|{_HEX})"
    of_user = f"(?:[:{letters}{_DELIMITERS}{_UNRESERVED}]|{_HEX})*"
    in_brackets = f"{_address()}|[vV][0-9A-Fa-f]+\\.[:{_DELIMITERS}{_UNRESERVED}]+"
    of_host = f"(?:\\[(?:{in_brackets})\\]|(?:[{letters}{_DELIMITERS}{_UNRESERVED}]|{_HEX})*)"
    rooted = f"//(?:{of_user}@)?{of_host}(?::[0-9]*)?(?:/{char}*)*|/(?:{char}+(?:/{char}*)*)?"
    rootless = f"{char}+(?:/{char}*)*"
    absolute = f"[A-Za-z][A-Za-z0-9+.-]*:(?:{rooted}|{rootless})?"
    relative = f"(?:{rooted}|{first}+(?:/{char}*)*)?"  # whose first part would be a scheme with a colon
    behind = f"(?:\\?(?:{char}|[/?{private}])*)?(?:#(?:{char}|[/?])*)?"
    return f"^(?:{absolute}{'' if needs_scheme else f'|{relative}'}){behind}$"


def _expression() -> str:
    """Return what a regular expression is that ECMA-262, with or without its flag u, and others read alike.

    Groups stand in groups twice; of lookaround there is lookahead, in no group; no name, no reference.
    """
    some = ("0123456789", string.ascii_lowercase, string.ascii_uppercase)
    spans = [
        f"{one[0]}-[{one}]|[{one}]-{one[-1]}|[{one[: len(one) // 2]}]-[{one[len(one) // 2 :]}]"
        for one in some
    ]
    two_hex = "[0-9A-Fa-f]{2}"
    hexes = f"\\\\(?:x{two_hex}|u(?:[0-9A-CEFace-f][0-9A-Fa-f]|[Dd][0-7]){two_hex})"
    escape = f"\\\\[dDsSwWfnrtv^$\\\\.*+?()[\\]{{}}|/]|{hexes}"
    in_class = f"(?:{'|'.join(spans)}|[^\\\\\\][^\\-\n\r]|\\\\-|{escape})"
    char = f"(?:[^\\^$\\\\.*+?()[\\]{{}}|\n\r]|\\.|{escape}|\\[\\^?-?{in_class}+-?\\])"
    counts = "|".join(f"{least},(?:[{least}-9]|[1-9][0-9]{{1,2}})" for least in range(10))
    times = f"(?:(?:[*+?]|\\{{(?:[0-9]{{1,3}},?|{counts})\\}})\\??)?"
    empty = "\\^|\\$|\\\\[bB]"
    inner = f"(?:{char}{times}|{empty}|\\|)*"
    for _ in range(2):
        group = f"\\((?:\\?:)?{inner}\\){times}"
        inner = f"(?:{char}{times}|{group}|{empty}|\\|)*"
    ahead = f"\\(\\?[=!](?:{char}{times}|{empty}|\\|)*\\)"
    return f"^{inner}(?:{ahead}{inner})?$"


_LITERAL: Final = f"[!#$&-;=?-[\\]_a-z~{_LETTERS}{_PRIVATE}]|{_HEX}"
_NAME: Final = f"(?:[A-Za-z0-9_]|{_HEX})(?:\\.?(?:[A-Za-z0-9_]|{_HEX}))*"
_VARIABLE: Final = f"{_NAME}(?::[1-9][0-9]{{0,3}}|\\*)?"

PATTERNS: Final = {
    "date": f"^{_DAY}$",
    "time": f"^{_TIME}$",
    "date-time": f"^{_DAY}T{_TIME}$",
    "hostname": f"^{_LABEL}(?:\\.{_LABEL}){{0,5}}$",
    "iri": _reference(_LETTERS, _PRIVATE, needs_scheme=True),
    "iri-reference": _reference(_LETTERS, _PRIVATE, needs_scheme=False),
    "json-pointer": f"^{_POINTER}$",
    "regex": _expression(),
    "relative-json-pointer": f"^(?:0|[1-9][0-9]*)(?:#|{_POINTER})$",
    "uri-reference": _reference("", "", needs_scheme=False),
    "uri-template": f"^(?:{_LITERAL}|\\{{[+#./;?&]?{_VARIABLE}(?:,{_VARIABLE})*\\}})*$",
}
