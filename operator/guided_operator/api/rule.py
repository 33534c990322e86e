"""One demand on a GuidedModel, in both of its forms, and what is said where it is not met."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong with a GuidedModel: where, as `spec.engine.args[2]`, and why."""

    field: str
    message: str

    def __str__(self) -> str:
        """Return one line for people."""
        return f"{self.field}: {self.message}"


@dataclass(frozen=True, slots=True)
class Rule:
    """One demand on the node at `at` ("*" stands for each item of a list).

    `cel` holds where the demand is met; `broken` is its negation on the parsed node. `field` is the part of
    the node that is reported, "" the node itself.
    """

    at: tuple[str, ...]
    field: str
    message: str
    cel: str
    broken: Callable[[Any], bool]


def cel_text(value: str) -> str:
    """Return a text, such as a pattern, as CEL writes it."""
    return "'" + value.replace("\\", "\\\\") + "'"


def cel_list(values: Iterable[str]) -> str:
    """Return texts as CEL writes a list of them."""
    return "[" + ", ".join(cel_text(value) for value in values) + "]"


def matches(pattern: str, value: str) -> bool:
    """Say what the API server's `matches` says: unlike Python's own, `$` is not before a last line break."""
    return re.search(re.sub(r"\$$", r"\\Z", pattern), value) is not None
