"""Keys that ask for a constraint elsewhere: in former versions of vLLM, on other routes and other servers.

A word is compared without case, hyphens, underscores and blanks, so that each stands here once.
"""

import difflib
import functools
import re
from collections.abc import Mapping
from typing import Final, NamedTuple, get_args

from guided_contract.wire import Kind

ANY: Final = ""  # what is asked for is a constraint of some kind
KINDS: Final = frozenset(get_args(Kind))


class Word(NamedTuple):
    """What a key asks for.

    Attributes
    ----------
    meaning
        The kind of constraint, ANY, or one of request_words' other advice.
    is_certain
        Whether it means so wherever it stands; others have other meanings in an object that nobody knows.
    near
        The word that it is near to, where it is none itself.
    """

    meaning: str
    is_certain: bool = True
    near: str = ""


_CERTAIN: Final[Mapping[str, str]] = {
    ANY: "responseformat structuredoutput structuredoutputs guideddecoding constraineddecoding",
    "json": "guidedjson jsonschema responseschema responsejsonschema outputformat outputschema jsonmode "
    "jsonoutput responsemimetype",
    "json_object": "guidedjsonobject jsonobject",
    "regex": "guidedregex",
    "choice": "guidedchoice",
    "grammar": "guidedgrammar ebnf gbnf ebnfgrammar contextfreegrammar larkgrammar",
    "structural_tag": "guidedstructuraltag structuraltag",
    "backend": "guideddecodingbackend guidedbackend",
    "whitespace": "guidedwhitespacepattern guidedwhitespace",
    "tool_choice": "functioncall toolchoice toolconfig functioncallingconfig",
}
_ELSEWHERE: Final[Mapping[str, str]] = {
    ANY: "structured outlines guidance constraint constraints",
    "json": "json schema format text outputconfig outputtype textformat",
    "regex": "regex regexp pattern",
    "choice": "choice choices",
    "grammar": "grammar lark bnf cfg",
    "backend": "backend",
    "tools": "functions tools",
}
_WORDS: Final = {
    word: Word(meaning, is_certain)
    for is_certain, table in ((True, _CERTAIN), (False, _ELSEWHERE))
    for meaning, words in table.items()
    for word in words.split()
}
# Objects whose fields another server, or a client's library, would have read as the request's own.
_CONTAINERS: Final = frozenset(
    {
        *("extrabody", "extra", "extraargs", "extraparams", "customparams", "nvext", "modelkwargs"),
        *("samplingparams", "samplingparameters", "parameters", "options", "generationconfig"),
    }
)
_CLOSE: Final = 0.8  # difflib's ratio from which a key is taken for a misspelt one


def exact(key: str) -> Word | None:
    """Return what a key asks for; None: no constraint."""
    word = folded(key)
    return _WORDS.get(word) or (Word(ANY) if word.startswith("guided") else None)


@functools.lru_cache(1024)  # clients send the same few keys again and again
def near(key: str, read: tuple[str, ...]) -> Word | None:
    """Return what a key asks for, or what a word of which it is a misspelling does; None: no constraint."""
    known = exact(key)
    words = [*read, "response_format", "structured_outputs", "tool_choice"]
    close = [] if known else difflib.get_close_matches(key, words, 1, _CLOSE)
    if not close:
        return known
    meaning = close[0] if close[0] in ("tools", "tool_choice") else ANY
    return Word(meaning, is_certain=False, near=close[0])


def is_container(key: str) -> bool:
    """Return whether what stands below a key would elsewhere stand beside it."""
    return folded(key) in _CONTAINERS


def folded(key: str) -> str:
    """Return a key as it is compared."""
    return re.sub(r"[-_\s]", "", key).casefold()
