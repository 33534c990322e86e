"""`make schema-table SUITE=...`: writes the tables of docs/json-schema.md."""

import os
import sys
from importlib import metadata
from pathlib import Path
from typing import Final

from devtools import tinymodel

from guided_contract.backends import DISTRIBUTIONS
from schemasuite import keywords, table
from schemasuite.cases import DRAFTS, cases
from schemasuite.outcomes import Outcome, judge
from schemasuite.subjects import Subject, subjects
from schemasuite.typed import typed

_PAGE: Final = Path(__file__).parents[2] / "docs/json-schema.md"


def main() -> int:
    """Run all cases, write the tables, and return 1 where a bar is missed."""
    if not (suite := os.environ.get("SUITE")):
        print("name the folder `tests` of a checkout of JSON-Schema-Test-Suite by SUITE=", file=sys.stderr)
        return 2
    asked = subjects(tinymodel.models() / "tiny")
    outcomes = {one.name: [judge(one, case) for case in cases(Path(suite))] for one in asked}
    of_typed = {one.name: _typed_outcomes(one, Path(suite)) for one in asked}
    untyped = {one.name: keywords.made(_required(outcomes[one.name])) for one in asked[1:]}
    with_type = {one.name: keywords.made(of_typed[one.name]) for one in asked[1:]}
    shares = keywords.shares(_required(outcomes["ours"]))
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in DISTRIBUTIONS)
    page = table.replaced(_PAGE.read_text(), "cases", [versions + ":", "", *table.cases(outcomes)])
    _PAGE.write_text(table.replaced(page, "keywords", table.keywords(shares, untyped, with_type)))
    missed = _missed(outcomes, of_typed["ours"])
    print("\n".join([*missed, f"written to {_PAGE}"]))
    return 1 if missed else 0


def _required(outcomes: list[Outcome]) -> list[Outcome]:
    return [outcome for outcome in outcomes if not outcome.case.is_optional]


def _typed_outcomes(subject: Subject, suite: Path) -> list[Outcome]:
    return [judge(subject, case) for case in typed(case for case in cases(suite) if not case.is_optional)]


def _missed(outcomes: dict[str, list[Outcome]], ours: list[Outcome]) -> list[str]:
    """Return what is missed: nothing produced though invalid, no less enforced than by a library alone."""
    found = [
        f"{one.case.description} is produced though invalid: {one.case.schema} takes {one.produced}"
        for one in ours
        if one.produced
    ]
    for draft in DRAFTS:
        mine, *libraries = (table.counts(found, draft, optional=False) for found in outcomes.values())
        if mine.cases["produced"]:
            found.append(f"{draft}: {mine.cases['produced']} cases are produced though invalid")
        better = max(library.cases["enforced"] for library in libraries)
        if mine.cases["enforced"] < better:
            found.append(f"{draft}: {mine.cases['enforced']} cases enforced, {better} by a library alone")
    return found


if __name__ == "__main__":
    sys.exit(main())
