"""The tables of docs/json-schema.md: what is enforced, refused and produced though invalid, and by whom."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from schemasuite.cases import DRAFTS
from schemasuite.keywords import Made
from schemasuite.outcomes import Counts, Outcome

_NAMES: Final = {"ours": "ours (`Auto`)", "xgrammar": "xgrammar", "guidance": "llguidance"}
_HEAD: Final = ("cases enforced", "refused", "**produced though invalid**", "without any valid one")


def replaced(page: str, name: str, lines: Iterable[str]) -> str:
    """Return a page with other lines between the two comments of this name.

    Raises
    ------
    ValueError
        It has no such comments.
    """
    start, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
    before, _, rest = page.partition(start)
    _, found, after = rest.partition(end)
    if not found:
        raise ValueError(f"the page has nothing between {start.strip()} and {end}")
    return "".join([before, start, *(f"{line}\n" for line in lines), found, after])


def counts(outcomes: Sequence[Outcome], draft: str, *, optional: bool) -> Counts:
    """Count the cases of one draft that have an invalid instance."""
    return Counts.of(
        outcome
        for outcome in outcomes
        if outcome.case.draft == draft
        and outcome.case.is_optional == optional
        and not all(one.is_valid for one in outcome.case.instances)
    )


def cases(outcomes: Mapping[str, Sequence[Outcome]]) -> Iterator[str]:
    """Yield the table of all cases, by draft and subject, and which of the optional ones we produce."""
    yield _row(("draft", "by", *_HEAD))
    yield _row(["---"] * (2 + len(_HEAD)))
    for optional in (False, True):
        for draft in DRAFTS:
            name = f"{draft}, optional/" if optional else draft
            for subject, found in outcomes.items():
                counted = counts(found, draft, optional=optional)
                cells = [
                    f"{counted.cases[verdict]} ({counted.invalid[verdict]})"
                    for verdict in ("enforced", "refused", "produced")
                ]
                yield _row((name, _NAMES[subject], *cells, str(counted.barren)))
    yield ""
    yield f"**optional/** is what JSON Schema leaves to implementations. {_optional(outcomes['ours'])}"


def _optional(ours: Sequence[Outcome]) -> str:
    """Say which of the optional cases we produce."""
    produced = [outcome for outcome in ours if outcome.case.is_optional and outcome.produced]
    if not produced:
        return "Nothing of it is produced though invalid."
    names = sorted({outcome.case.keyword.removeprefix("optional/") for outcome in produced})
    return f"What we produce though invalid there is in {', '.join(f'`{name}`' for name in names)}."


def keywords(
    ours: Mapping[str, str],
    untyped: Mapping[str, Mapping[str, Made]],
    typed: Mapping[str, Mapping[str, Made]],
) -> Iterator[str]:
    """Yield the table of keywords: what is enforced of each, and what a library makes of it alone."""
    yield _row(("keyword", "ours", "xgrammar", "with a type", "llguidance", "with a type"))
    yield _row(["---"] * 6)
    together: dict[tuple[str, ...], list[str]] = {}
    for keyword in sorted({name for made in untyped.values() for name in made}):
        cells = [
            made[backend].get(keyword, "")
            for backend in ("xgrammar", "guidance")
            for made in (untyped, typed)
        ]
        together.setdefault((ours[keyword], *cells), []).append(f"`{keyword}`")
    for verdicts, alike in together.items():
        yield _row((", ".join(alike), *verdicts))


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"
