"""A benchmark's bars: what is asked, what was found, and whether that suffices."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

_SAID: Final = {True: "yes", False: "**no**", None: "-"}


@dataclass(frozen=True, slots=True)
class Bar:
    """What is asked, what was found, and whether that suffices; `met` None: not measured, or not here."""

    asks: str
    found: str
    met: bool | None


def table(bars: Iterable[Bar]) -> list[str]:
    """Return the lines of a Markdown table."""
    rows = (f"| {bar.asks} | {bar.found} | {_SAID[bar.met]} |" for bar in bars)
    return ["| bar | found | met |", "|---|---|---|", *rows]
