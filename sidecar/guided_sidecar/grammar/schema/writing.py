"""What all who write parts of a normal form share."""

from collections.abc import Iterable
from typing import Any, Final, Protocol

from guided_contract.errors import ErrorCode, GuidedError
from guided_grammar.json_schema.subschemas import JsonPath
from guided_sidecar.grammar.schema import patterns
from guided_sidecar.grammar.schema.faults import fault
from guided_sidecar.grammar.schema.origins import Said

Schema = dict[str, Any]
Alternatives = list[Any]

TYPES: Final = frozenset(["array", "boolean", "null", "number", "object", "string"])


class Writer(Protocol):
    """Reads the schema as written, and writes parts of its normal form; paths are for refusals.

    Attributes
    ----------
    draft
        4, 6, 7, 2019 or 2020.
    """

    draft: int

    def also(self, written: Schema, other: Any, path: JsonPath) -> None:
        """Ask for another schema, too, that a keyword at a path stands for."""

    def narrow(self, path: JsonPath) -> None:
        """Note that what is written for a keyword takes less than that does."""

    def said(self, part: Schema, path: JsonPath) -> Said:
        """Return what a part of the schema as written asserts; see dialect.read."""

    def follow(self, part: Schema, keyword: str, path: JsonPath) -> Any:
        """Return what a part's reference names."""

    def resolved(self, part: Any, path: JsonPath) -> Any:
        """Return a part, or what it leads to where it is a reference alone."""

    def write(self, part: Any, path: JsonPath) -> Any:
        """Return the normal form of a part."""


def unsupported(path: JsonPath, reason: str) -> GuidedError:
    """Return the refusal of a keyword that has no normal form."""
    return fault(str(path), reason, ErrorCode.GRAMMAR_UNSUPPORTED)


def too_many(path: JsonPath) -> GuidedError:
    """Return the refusal of a schema whose normal form is too long."""
    reason = "the schema expands to too many alternatives"
    return fault(str(path), reason, ErrorCode.GRAMMAR_TOO_LARGE)


def size(written: Any) -> int:
    """Return how many objects and arrays a value has when it is written out; one may stand in many places."""
    sizes: dict[int, int] = {}
    stack = [written]
    while stack:
        value = stack[-1]
        parts = [part for part in _parts(value) if isinstance(part, dict | list)]
        if waiting := [part for part in parts if id(part) not in sizes]:
            stack += waiting
            continue
        sizes[id(value)] = 1 + sum(sizes[id(part)] for part in parts)
        stack.pop()
    return sizes[id(written)]


def _parts(value: Any) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value


def either(found: Alternatives) -> Any:
    """Return alternatives as one schema; False: there are none."""
    if not found:
        return False
    return found[0] if len(found) == 1 else {"anyOf": found}


def both(found: Alternatives) -> Any:
    """Return a schema that asks for all of these."""
    return found[0] if len(found) == 1 else {"allOf": found}


def of_other_types(types: frozenset[str], kind: str) -> Alternatives:
    """Return the values of all types but one, as an alternative to what is asked of that one."""
    others = sorted(types - {kind})
    return [{"type": others}] if others else []


def conditions(pattern: str, path: JsonPath) -> list[str]:
    """Return patterns without lookaround that together mean a pattern, or refuse it."""
    try:
        return patterns.conditions(pattern)
    except patterns.PatternError as error:
        raise unsupported(path, str(error)) from error
