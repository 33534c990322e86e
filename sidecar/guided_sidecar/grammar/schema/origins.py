"""Where the parts of a normal form were written, and where the form takes less than was written there.

What is refused of a form is told by its author's keyword. That no value meets a form is said of the schema
only where the form takes all that the schema does.
"""

import re
from os.path import commonprefix
from typing import Any, Final, NamedTuple

from guided_contract.errors import ErrorCode, GuidedError
from guided_grammar.json_schema import subschemas
from guided_grammar.json_schema.keywords import BRANCHES
from guided_grammar.json_schema.subschemas import JsonPath
from guided_sidecar.grammar.schema.faults import fault, moved

_KEYWORD: Final = re.compile(r"\.([\w$]+)")
# What a keyword of the normal form may have been written for.
_WRITTEN_FOR: Final = {
    "additionalProperties": ("propertyNames",),
    "anyOf": ("oneOf",),
    "const": ("enum",),
    "enum": ("const", "uniqueItems"),
    "pattern": ("format",),
    "patternProperties": ("propertyNames",),
}
PARTLY: Final = "it is enforced only in part, and no value satisfies that part and the other keywords"


class Said(dict[str, Any]):
    """What one object asserts, by keywords of draft 2020-12.

    Attributes
    ----------
    names
        The author's keyword of each that was written in another one's place.
    narrowed
        The author's keywords of which something is written that takes less.
    """

    def __init__(self, said: dict[str, Any], names: dict[str, str] | None = None) -> None:
        super().__init__(said)
        self.names = names if names is not None else {}
        self.narrowed: list[str] = []

    def at(self, path: JsonPath, keyword: str) -> JsonPath:
        """Return the path of a keyword, in its author's word, below that of the object."""
        return JsonPath(path, self.names.get(keyword, keyword))


class Origin(NamedTuple):
    """Where a part of a form was written, what it said there, and the part."""

    path: JsonPath
    said: Said
    part: dict[str, Any]


class Form(NamedTuple):
    """A normal form.

    Attributes
    ----------
    origins
        Of its parts by their id; one without was written for the part around it.
    narrowed
        The paths of the keywords for which the form takes less than the schema does.
    path
        The JSONPath of the schema in the grammar's text; those above are below the schema.
    """

    schema: Any
    origins: dict[int, Origin]
    narrowed: list[str]
    path: str = "$"

    def at(self, inner: str | None) -> str:
        """Return the path in the grammar's text of what has a path in the form."""
        inner = inner or "$"
        for path, part in reversed(subschemas.along(self.schema, inner)):
            if (origin := self.origins.get(id(part))) is not None:
                return subschemas.below(self.path, str(self._keyword(origin, inner[len(path) :])))
        return self.path

    def told(self, error: GuidedError) -> GuidedError:
        """Return a refusal of the grammar as one of the schema: what has no value may have one as written."""
        where = error.path or "$"
        if error.code is not ErrorCode.GRAMMAR_DEAD_END or not where.startswith(self.path):
            return error
        told = [fault(path, PARTLY, ErrorCode.GRAMMAR_UNSUPPORTED) for path in self.narrowed]
        found = [moved(one, self.path) for one in told]
        return max(found, key=lambda one: len(commonprefix([one.path or "$", where])), default=error)  # noqa: RUF071 - they are texts

    def _keyword(self, origin: Origin, rest: str) -> JsonPath:
        """Return the path of the keyword that what is left of a path begins with."""
        found = _KEYWORD.match(rest)
        keyword = found[1] if found else ""
        for written in (keyword, *_WRITTEN_FOR.get(keyword, ())):
            if written in origin.said:
                return origin.said.at(origin.path, written)
        # The last keyword that is written so was one too many.
        parts = origin.part.get(keyword, ()) if keyword in BRANCHES else ()
        known = [self.origins[id(part)].path for part in parts if id(part) in self.origins]
        return known[-1] if known else origin.path
