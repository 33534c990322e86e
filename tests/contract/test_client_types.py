"""Types of pydantic and zod, as client libraries send them: served or refused, and what may be answered.

Judged by pydantic itself and by jsonschema. Tried from outside, 13 of 91 types were refused.
"""

import re
from collections.abc import Sequence

import pytest

from support.client_types import __main__ as writer
from support.client_types import table
from support.client_types.table import Case, Outcome

Found = Sequence[tuple[Case, Outcome]]


@pytest.fixture(scope="module")
def found() -> Found:
    asked = table.Table()
    return [(case, asked.outcome(case)) for case in table.cases()]


def test_answers_are_what_the_client_takes(found: Found) -> None:
    assert not [fault for _, outcome in found for fault in outcome.faults]
    served = [(case.name, outcome.finished) for case, outcome in found if not outcome.refused]
    assert not [name for name, finished in served if not finished]


def test_each_value_can_be_answered(found: Found) -> None:
    assert not [(case.name, text) for case, outcome in found for text in outcome.missing]


def test_a_refusal_names_its_keyword(found: Found) -> None:
    refused = [outcome.refused for _, outcome in found if outcome.refused]
    assert all(re.fullmatch("`[a-zA-Z]+`", why) for why in refused), refused


def test_the_page_says_what_becomes_of_each_type(found: Found) -> None:
    """`make client-table` writes it."""
    page = writer.PAGE.read_text()
    assert page == table.written(page, table.page(found))
