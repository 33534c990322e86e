"""What each library makes of each keyword: the module of the sidecar that `make schema-table` writes."""

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Final, Literal

from guided_grammar.json_schema.keywords import CONSTRAINTS
from schemasuite.outcomes import Outcome

Made = Literal["enforced", "ignored", "partly", "refused", "unknown"]
# Files that are about several keywords, or about none.
_KEYWORDS: Final = {
    "dynamicRef": ("$dynamicRef",),
    "if-then-else": ("if", "then", "else"),
    "ref": ("$ref",),
}
_OF_NONE: Final = frozenset(
    [
        "anchor",
        "boolean_schema",
        "content",
        "default",
        "definitions",
        "defs",
        "format",
        "infinite-loop-detection",
        "refRemote",
        "vocabulary",
    ]
)
_MODULE: Final = '''\
"""What each library makes of each keyword of the normal form, as seen; `make schema-table` writes this.

JSON-Schema-Test-Suite's cases, draft 2020-12 and 7, through each library alone; first as they are, most of
them without a type, then with the type that the keyword is about, and further properties and items allowed.

enforced: of what the library takes, it generates nothing invalid. ignored: in every case that it takes it
generates something invalid. partly: in some. refused: it takes none. unknown: there is no such case.
"""

from typing import Final, Literal, NamedTuple

from guided_contract.wire import Backend

Made = Literal["enforced", "ignored", "partly", "refused", "unknown"]


class Seen(NamedTuple):
    """What a library makes of a keyword without a type beside it, and with one."""

    untyped: Made
    typed: Made


VERSIONS: Final[dict[str, str]] = {versions}
KEYWORDS: Final[dict[Backend, dict[str, Seen]]] = {keywords}
'''


def made(outcomes: Iterable[Outcome]) -> dict[str, Made]:
    """Return one word for each keyword, from a library's outcomes."""
    return {keyword: _word(found) for keyword, found in _verdicts(outcomes).items()}


def shares(outcomes: Iterable[Outcome]) -> dict[str, str]:
    """Return for each keyword how many of its cases are enforced, as `3 of 5`, or `all`."""
    return {
        keyword: "all" if found["enforced"] == found.total() else f"{found['enforced']} of {found.total()}"
        for keyword, found in _verdicts(outcomes).items()
    }


def _verdicts(outcomes: Iterable[Outcome]) -> dict[str, Counter[str]]:
    verdicts: dict[str, Counter[str]] = {}
    for outcome in outcomes:
        if all(one.is_valid for one in outcome.case.instances) or outcome.case.keyword in _OF_NONE:
            continue  # nothing invalid to tell it by
        for keyword in _KEYWORDS.get(outcome.case.keyword, (outcome.case.keyword,)):
            verdicts.setdefault(keyword, Counter())[outcome.verdict] += 1
    return dict(sorted(verdicts.items()))


def _word(verdicts: Collection[str]) -> Made:
    if "produced" in verdicts:
        return "partly" if "enforced" in verdicts else "ignored"
    return "enforced" if "enforced" in verdicts else "refused"


def module(
    versions: Mapping[str, str],
    untyped: Mapping[str, Mapping[str, Made]],
    typed: Mapping[str, Mapping[str, Made]],
) -> str:
    """Return the text of the sidecar's module.

    Parameters
    ----------
    versions
        Of the libraries.
    untyped, typed
        By library and keyword.
    """
    seen_of = {keyword for found in (untyped, typed) for made in found.values() for keyword in made}
    names = sorted(seen_of & CONSTRAINTS)
    lines = ["{"]
    for backend, found in untyped.items():
        lines.append(f"    {json.dumps(backend)}: {{")
        for name in names:
            seen = [json.dumps(words.get(name, "unknown")) for words in (found, typed[backend])]
            lines.append(f"        {json.dumps(name)}: Seen({', '.join(seen)}),")
        lines.append("    },")
    lines.append("}")
    text = _MODULE.replace("{versions}", json.dumps(dict(sorted(versions.items()))))
    return text.replace("{keywords}", "\n".join(lines))
