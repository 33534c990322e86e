"""Faults of a schema, each with its path, told together."""

import itertools
from collections.abc import Iterable
from typing import Final

from guided_contract.errors import ErrorCode, GuidedError
from guided_grammar.json_schema import subschemas
from guided_grammar.json_schema.subschemas import JsonPath

MOST: Final = 10  # that are told at once
_MOST_LOOKED_AT: Final = 200
_MOST_PATH: Final = 160  # characters
_MOST_CHARACTERS: Final = 700  # of all of them; of a longer text, a worker's answer keeps begin and end


def fault(path: str, reason: str, code: ErrorCode = ErrorCode.GRAMMAR_INVALID) -> GuidedError:
    """Return one fault, in the form `path: reason`; a long path is shortened there."""
    where = path if len(path) <= _MOST_PATH else f"{path[: _MOST_PATH // 2]}…{path[-_MOST_PATH // 2 :]}"
    return GuidedError(code, f"{where}: {reason}", path=path)


def unsupported(path: JsonPath, reason: str) -> GuidedError:
    """Return the refusal of a keyword that is not enforced."""
    return fault(str(path), reason, ErrorCode.GRAMMAR_UNSUPPORTED)


def refuse(found: Iterable[GuidedError]) -> None:
    """Raise one error listing up to ten faults; without any, do nothing.

    Raises
    ------
    GuidedError
        With a line for each fault; its code and path are the first one's.
    """
    # A metaschema has several parts, each of which tells the same.
    told = {one.message: one for one in itertools.islice(found, _MOST_LOOKED_AT)}
    first = list(told.values())[: MOST + 1]
    lines: list[str] = []
    for one in first[:MOST]:
        if lines and sum(map(len, lines)) + len(one.message) > _MOST_CHARACTERS:
            break
        lines.append(one.message)
    if len(lines) < len(first):
        lines.append("and more")
    if lines:
        raise GuidedError(first[0].code, "\n".join(lines), path=first[0].path)


def moved(error: GuidedError, path: str) -> GuidedError:
    """Return an error about a schema that itself stands at `path` in a grammar."""
    lines = error.message.split("\n")
    there = [subschemas.below(path, line) if line.startswith("$") else line for line in lines]
    return GuidedError(error.code, "\n".join(there), path=subschemas.below(path, error.path))
