"""The formats of the specification: as a pattern, by a library's own word, or refused.

A library does not know some of them, or reads others than the next one does: days that a month does not
have, letters of either case, raw control characters. The specification calls other names annotations, as
OpenAPI's `int32` and pydantic's `password`.
"""

from typing import Final

LIBRARYS: Final = frozenset(["duration", "email", "ipv4", "ipv6", "uri", "uuid"])
# In ASCII alone: what is one of these is one of those.
IN_ASCII: Final = {
    "idn-email": "email",
    "idn-hostname": "hostname",
    "iri": "uri",
    "iri-reference": "uri-reference",
}
# No lower case, no leap seconds; of the others, what the patterns below say.
NARROWED: Final = frozenset(
    [*IN_ASCII, "date-time", "hostname", "regex", "time", "uri-reference", "uri-template"]
)
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

# RFC 3986, without addresses in brackets; RFC 6570, without its reserved operators and beyond ASCII.
_HEX: Final = "%[0-9A-Fa-f]{2}"
_HOST: Final = f"(?:[A-Za-z0-9._~!$&'()*+,;=-]|{_HEX})"
_FIRST: Final = f"(?:[A-Za-z0-9._~!$&'()*+,;=@-]|{_HEX})"  # of a path whose first part may not be a scheme
_CHAR: Final = f"(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|{_HEX})"
_SCHEME: Final = "[A-Za-z][A-Za-z0-9+.-]*:"
_ROOTED: Final = f"//(?:{_HOST}*@)?{_HOST}*(?::[0-9]*)?(?:/{_CHAR}*)*|/(?:{_CHAR}+(?:/{_CHAR}*)*)?"
_ROOTLESS: Final = f"(?:{_SCHEME}{_CHAR}+|{_FIRST}+)(?:/{_CHAR}*)*"
_BEHIND: Final = f"(?:\\?(?:{_CHAR}|[/?])*)?(?:#(?:{_CHAR}|[/?])*)?"
_LITERAL: Final = f"[!#$&'()*+,./0-9:;=?@A-Z\\[\\]_a-z~-]|{_HEX}"
_NAME: Final = f"(?:[A-Za-z0-9_]|{_HEX})(?:\\.?(?:[A-Za-z0-9_]|{_HEX}))*"
_VARIABLE: Final = f"{_NAME}(?::[1-9][0-9]{{0,3}}|\\*)?"
# What ECMA-262 and others read alike: no groups, no counts, plain classes.
_ITEM: Final = "[A-Za-z0-9 _/:;,@#%&=<>~-]|\\.|\\\\[dDsSwW.*+?()|/^$\\[\\]{}\\\\-]"
_CLASS: Final = "\\[\\^?(?:a-z|A-Z|0-9|[A-Za-z0-9_./ ])+-?\\]"

PATTERNS: Final = {
    "date": f"^{_DAY}$",
    "time": f"^{_TIME}$",
    "date-time": f"^{_DAY}T{_TIME}$",
    "hostname": f"^{_LABEL}(?:\\.{_LABEL}){{0,5}}$",
    "json-pointer": f"^{_POINTER}$",
    "regex": f"^\\^?(?:(?:{_ITEM}|{_CLASS})[*+?]?)*\\$?$",
    "relative-json-pointer": f"^(?:0|[1-9][0-9]*)(?:#|{_POINTER})$",
    "uri-reference": f"^(?:(?:{_SCHEME})?(?:{_ROOTED})?|{_ROOTLESS}){_BEHIND}$",
    "uri-template": f"^(?:{_LITERAL}|\\{{[+#./;?&]?{_VARIABLE}(?:,{_VARIABLE})*\\}})*$",
}
