"""Writes the types' part of docs/clients.md (`make client-table`)."""

import sys
from pathlib import Path

from support.client_types import table

PAGE = Path(__file__).parents[3] / "docs/clients.md"


def main() -> None:
    """Compile every type's schema and write the page; ends with 1 where an answer would be wrong."""
    asked = table.Table()
    found = [(case, asked.outcome(case)) for case in table.cases()]
    PAGE.write_text(table.written(PAGE.read_text(), table.page(found)))
    wrong = [
        f"{case.name}: {fault}" for case, outcome in found for fault in (*outcome.faults, *outcome.missing)
    ]
    sys.exit("\n".join(wrong) or None)


if __name__ == "__main__":
    main()
