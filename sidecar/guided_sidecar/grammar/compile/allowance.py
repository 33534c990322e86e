"""Takes what no library enforces out of a text whose sender allows that, keyword by keyword."""

import json
from typing import Any, Final

from guided_contract.errors import ErrorCode, GuidedError
from guided_contract.wire import Kind
from guided_grammar.json_schema import subschemas
from guided_grammar.json_schema.keywords import KEYWORDS
from guided_sidecar.grammar.compile.reading import WHOLE
from guided_sidecar.grammar.schema import dialect
from guided_sidecar.grammar.worker_messages import Unenforced, unenforced

MOST: Final = 32  # keywords; a schema with more is compiled as vLLM compiles it
_OTHER: Final = "other"


class Allowance:
    """What is left of one text.

    Parameters
    ----------
    kind, written
        The grammar, as limits.parsed returns it, which stays as it is.

    Attributes
    ----------
    written
        What is left of it.
    taken
        What was taken out; WHOLE alone: nothing, and nothing is promised of it.
    """

    def __init__(self, kind: Kind, written: Any) -> None:
        self.written = self._asked = written
        self.taken: list[Unenforced] = []
        self._kind = kind

    def take_out(self, error: GuidedError) -> None:
        """Take out the keyword that a refusal is about; if that is none of a schema in it, promise nothing.

        Raises
        ------
        GuidedError
            That refusal: it is not of what is not enforced, or of an option of one library.
        """
        # What is left may contradict itself, which nobody wrote.
        is_ours = self.taken and error.code in {ErrorCode.GRAMMAR_INVALID, ErrorCode.GRAMMAR_DEAD_END}
        path = error.path or "$"
        is_private = path.endswith(subschemas.step("", dialect.PRIVATE))
        is_allowed = is_ours or (error.code is ErrorCode.GRAMMAR_UNSUPPORTED and not is_private)
        if WHOLE in self.taken or not is_allowed:
            raise error
        if not self.taken:
            self.written = json.loads(json.dumps(self._asked))
        found = [
            (way, place, keyword)
            for way, schema in self._schemas()
            for place in subschemas.places(schema)
            for keyword in place.schema
            if _leads(subschemas.below(way, place.at(keyword)), path)
        ]
        if not found or len(self.taken) == MOST:
            self.written, self.taken = self._asked, [WHOLE]
            return
        way, place, innermost = found[-1]
        for keyword in _take_out(place.schema, innermost):
            at = subschemas.below(way, place.at(keyword))
            self.taken.append(unenforced(at, keyword if keyword in KEYWORDS else _OTHER))

    def _schemas(self) -> list[tuple[str, Any]]:
        """Return the schemas in what is left, each with its path."""
        found: list[tuple[str, Any]] = [("$", self.written)] if self._kind == "json" else []
        if self._kind == "structural_tag":
            subschemas.with_each_of_tag(self.written, lambda way, one: found.append((str(way), one)))
        return found


def _take_out(schema: dict[str, Any], keyword: str) -> list[str]:
    """Take out a keyword; return all that hold no more: what it named may be a further property then."""
    value, gone = schema.pop(keyword), [keyword]
    if keyword == "oneOf":  # one of them at least
        schema["allOf"] = [*schema.get("allOf", ()), {"anyOf": value}]
    elif keyword == "patternProperties":
        gone += ["additionalProperties"] * (schema.get("additionalProperties", True) is not True)
        schema["additionalProperties"] = True
    elif keyword == "propertyNames" and "unevaluatedProperties" not in schema:
        schema.setdefault("additionalProperties", True)
    return gone


def _leads(way: str, path: str) -> bool:
    return path == way or path.startswith((f"{way}.", f"{way}["))
