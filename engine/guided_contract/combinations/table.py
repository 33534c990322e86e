"""The table, and what it says of an engine."""

from collections.abc import Iterator
from typing import Final

from guided_contract.combinations.batches import BATCH_ROWS
from guided_contract.combinations.contents import CONTENT_ROWS
from guided_contract.combinations.loads import LOAD_ROWS
from guided_contract.combinations.methods import METHOD_ROWS
from guided_contract.combinations.row import Decider, Facts, Row, Verdict
from guided_contract.combinations.spread import SPREAD_ROWS
from guided_contract.combinations.verification import VERIFICATION_ROWS

ROWS: Final = (
    *METHOD_ROWS,
    *VERIFICATION_ROWS,
    *SPREAD_ROWS,
    *CONTENT_ROWS,
    *LOAD_ROWS,
    *BATCH_ROWS,
)


def that_hold(facts: Facts, *verdicts: Verdict) -> Iterator[Row]:
    """Yield the rows of these verdicts that hold, of all verdicts where none is named."""
    return (row for row in ROWS if (not verdicts or row.verdict in verdicts) and row.holds(facts))


def refusals(facts: Facts, decider: Decider) -> Iterator[Row]:
    """Yield the rows by which this decider refuses an engine."""
    return (row for row in that_hold(facts, "Refused") if decider in row.decided_by)
