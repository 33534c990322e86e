"""`python -m devtools.advice_tables` prints what docs/runbook.md says about reasons."""

import functools
import sys
from typing import Final

from guided_operator.cli import advice

_SHOWN: Final = (
    ("{gm}", "gm/NAME -n NAMESPACE"),
    ("{pods}", "-n NAMESPACE -l guidedmodel.io/name=NAME"),
)


def table() -> str:
    """Return the table as Markdown; a reason that asks for nothing is left out."""
    rows = ["| reason | what to do |", "| --- | --- |"]
    for name, text in advice.REASONS.items():
        if text is not None:
            shown = functools.reduce(lambda told, each: told.replace(*each), _SHOWN, text)
            rows.append(f"| `{name}` | {shown} |")
    return "\n".join(rows) + "\n"


if __name__ == "__main__":
    sys.stdout.write(table())
