"""`python -m devtools.advice_tables` prints what docs/runbook.md says about reasons and codes."""

import functools
import sys
from collections.abc import Mapping
from typing import Final

from guided_operator.cli.cluster import advice

_SHOWN: Final = (
    ("{gm}", "gm/NAME -n NAMESPACE"),
    ("{pods}", "-n NAMESPACE -l guidedmodel.io/name=NAME"),
    ("{container}", "-n NAMESPACE POD -c CONTAINER"),
)


def tables() -> str:
    """Return both tables as Markdown; a reason that asks for nothing is left out."""
    parts = (_table("reason", advice.REASONS), _table("code", advice.CODES))
    return "\n".join(parts)


def _table(head: str, texts: Mapping[str, str | None]) -> str:
    rows = [f"| {head} | what to do |", "| --- | --- |"]
    for name, text in texts.items():
        if text is not None:
            shown = functools.reduce(lambda told, each: told.replace(*each), _SHOWN, text)
            rows.append(f"| `{name}` | {shown} |")
    return "\n".join(rows) + "\n"


if __name__ == "__main__":
    sys.stdout.write(tables())
