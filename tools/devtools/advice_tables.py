"""`python -m devtools.advice_tables` prints what docs/runbook.md says about reasons."""

import functools
import sys
from typing import Final

from guided_operator.cli import advice

_SHOWN: Final = (
    ("{gm}", "gm/NAME -n NAMESPACE"),
    ("{pods}", "PODS"),
)
_HEAD: Final = """\
`PODS` is `-n NAMESPACE -l guidedmodel.io/name=NAME`.

| reason | what to do |
| --- | --- |
"""


def table() -> str:
    """Return the table as Markdown; a reason that asks for nothing is left out, equal advice is one row."""
    reasons: dict[str, list[str]] = {}
    for name, text in advice.REASONS.items():
        if text is not None:
            shown = functools.reduce(lambda told, each: told.replace(*each), _SHOWN, text)
            reasons.setdefault(shown, []).append(f"`{name}`")
    return _HEAD + "".join(f"| {', '.join(names)} | {shown} |\n" for shown, names in reasons.items())


if __name__ == "__main__":
    sys.stdout.write(table())
