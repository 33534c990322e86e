"""A validation rule of a GuidedModel, in CEL and in Python, with its message."""

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
    """A validation rule.

    Parameters
    ----------
    at
        Path of the node that it is about; "*" stands for each item of a list.
    field
        The part of the node that is reported; "" is the node itself.
    message
        What is reported after the field: what must hold, and what to do.
    cel
        CEL that is true if the rule is met.
    broken
        The negation of `cel`, on the parsed node.
    """

    at: tuple[str, ...]
    field: str
    message: str
    cel: str
    broken: Callable[[Any], bool]


def cel_text(value: str) -> str:
    """Return a text, such as a pattern, as CEL writes it."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def cel_list(values: Iterable[str]) -> str:
    """Return texts as CEL writes a list of them."""
    return "[" + ", ".join(cel_text(value) for value in values) + "]"


def matches(pattern: str, value: str) -> bool:
    """Say what the API server's `matches` says: unlike Python's own, `$` is not before a last line break."""
    return re.search(re.sub(r"\$$", r"\\Z", pattern), value) is not None
