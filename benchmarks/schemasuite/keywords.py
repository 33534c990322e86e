"""What each library makes of each keyword, in one word."""

from collections import Counter
from collections.abc import Collection, Iterable
from typing import Final, Literal

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
