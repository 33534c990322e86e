"""Takes what no library enforces out of a text whose sender allows that, keyword by keyword."""

import json
from typing import Any, Final

from guided_contract.errors import ErrorCode, GuidedError
from guided_contract.wire import Kind
from guided_grammar.json_schema import subschemas
from guided_grammar.json_schema.keywords import KEYWORDS
from guided_grammar.json_schema.subschemas import JsonPath
from guided_sidecar.grammar.schema import dialect
from guided_sidecar.grammar.worker_messages import Unenforced, unenforced

MOST: Final = 32  # keywords; a schema with more is compiled as vLLM compiles it
WHOLE: Final = Unenforced("$", "all")  # of a text of which nothing is promised

_OTHER: Final = "other"
_NAMED: Final = tuple(keyword for keyword in subschemas.MAPS if keyword != "patternProperties")


class Allowance:
    """What is taken out of one text.

    Parameters
    ----------
    kind, spec
        The grammar, as a job has it.

    Attributes
    ----------
    taken
        What was taken out.
    """

    def __init__(self, kind: Kind, spec: str) -> None:
        self.taken: list[Unenforced] = []
        self._asked: set[str] = set()
        self._value = json.loads(spec) if kind in ("json", "structural_tag") else None
        self._schemas: list[tuple[str, Any]] = [("$", self._value)]
        if kind == "structural_tag":
            self._schemas = []
            subschemas.with_each_of_tag(self._value, self._note)

    def covers(self, error: GuidedError) -> bool:
        """Return whether a refusal is of what is not enforced, and of no option of one library."""
        if error.code in {ErrorCode.GRAMMAR_INVALID, ErrorCode.GRAMMAR_DEAD_END}:
            return bool(self.taken)  # what is left may contradict itself, which nobody wrote
        is_private = (error.path or "").endswith(subschemas.step("", dialect.PRIVATE))
        return error.code is ErrorCode.GRAMMAR_UNSUPPORTED and not is_private

    def without(self, error: GuidedError) -> str | None:
        """Return the text without what a refusal is about, None if that is no keyword of a schema in it."""
        path = error.path
        if path is None or path in self._asked or len(self.taken) >= MOST:
            return None
        self._asked.add(path)
        for at, schema in self._schemas:
            steps = list(_steps(schema, "$" + path.removeprefix(at))) if _leads(at, path) else []
            if steps:
                keyword, taken = _take_out(*steps[-1], "$" + path.removeprefix(at))
                known = keyword if keyword in KEYWORDS else _OTHER
                self.taken.append(unenforced(subschemas.below(at, taken), known))
                return json.dumps(self._value)
        return None

    def _note(self, way: JsonPath, schema: Any) -> Any:
        self._schemas.append((str(way), schema))
        return schema


def _take_out(place: subschemas.Place, keyword: str, path: str) -> tuple[str, str]:
    """Change a schema so that it does without what has a path; return what that took: keyword and path."""
    schema, own = place.schema, place.at(keyword)
    named = schema[keyword] if keyword in _NAMED else ()
    if (name := next((name for name in named if subschemas.step(own, name) == path), None)) is not None:
        schema[keyword][name] = True
        return keyword, path
    value = schema.pop(keyword)
    if keyword == "oneOf":  # one of them at least
        schema["allOf"] = [*schema.get("allOf", ()), {"anyOf": value}]
    elif keyword == "patternProperties":
        schema["additionalProperties"] = True
    elif keyword == "propertyNames":
        schema.setdefault("additionalProperties", True)
    return keyword, own


def _steps(root: Any, path: str) -> list[tuple[subschemas.Place, str]]:
    """Return the keywords on the way to a path, each with the schema that has it, the outermost first."""
    return [
        (place, keyword)
        for place in subschemas.walk(root)
        if _leads(place.path, path)
        for keyword in place.schema
        if _leads(place.at(keyword), path)
    ]


def _leads(way: str, path: str) -> bool:
    return path == way or path.startswith((f"{way}.", f"{way}["))
