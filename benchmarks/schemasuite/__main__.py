"""`make schema-table SUITE=...`: writes docs/json-schema.md, or that below OUT=."""

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
from schemasuite.pairs import pairs
from schemasuite.subjects import Subject, subjects
from schemasuite.typed import typed

_ROOT: Final = Path(__file__).parents[2]
_DOCUMENT: Final = "docs/json-schema.md"


def main() -> int:
    """Run all cases, write the page, and return 1 where a bar is missed."""
    if not (suite := os.environ.get("SUITE")):
        print("name the folder `tests` of a checkout of JSON-Schema-Test-Suite by SUITE=", file=sys.stderr)
        return 2
    asked = subjects(tinymodel.models() / "tiny")
    outcomes = {one.name: [judge(one, case) for case in cases(Path(suite))] for one in asked}
    untyped = {one.name: keywords.made(_required(outcomes[one.name])) for one in asked[1:]}
    of_typed = {one.name: _typed_outcomes(one, Path(suite)) for one in asked}
    of_pairs = {one.name: [judge(one, case) for case in pairs()] for one in asked}
    with_type = {one.name: keywords.made(of_typed[one.name]) for one in asked[1:]}
    versions = {name: metadata.version(name) for name in DISTRIBUTIONS}
    out = Path(os.environ.get("OUT") or _ROOT)
    page = out / _DOCUMENT
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(table.document(versions, outcomes, untyped, with_type, of_pairs))
    missed = _missed(outcomes, [*of_typed["ours"], *of_pairs["ours"]])
    print("\n".join([*missed, f"written to {out}: {_DOCUMENT}"]))
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
