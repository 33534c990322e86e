"""Types of pydantic and zod, as client libraries send them: served or refused, and what may be answered.

Judged by pydantic itself and by jsonschema.
"""

from collections.abc import Sequence

import pytest

from support.client_types import table
from support.client_types.table import Case, Outcome
from support.compositions.libraries import Compilers

Found = Sequence[tuple[Case, Outcome]]


@pytest.fixture(scope="module")
def found(compilers: Compilers) -> Found:
    return [(case, table.outcome(compilers, case)) for case in table.cases()]


def test_answers_are_what_the_client_takes(found: Found) -> None:
    assert not [fault for _, outcome in found for fault in outcome.faults]
    served = [(case.name, outcome.finished) for case, outcome in found if not outcome.refused]
    assert not [name for name, finished in served if not finished]


def test_each_value_can_be_answered(found: Found) -> None:
    assert not [(case.name, text) for case, outcome in found for text in outcome.missing]


def test_docs_list_the_types_that_are_refused_with_their_keyword(found: Found) -> None:
    """docs/clients.md: if this fails, so does that page."""
    refused = {case.name: outcome.refused for case, outcome in found if outcome.refused}
    assert refused == {"dict[UUID, int]": "propertyNames"}
