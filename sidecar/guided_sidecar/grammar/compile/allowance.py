"""Takes what no library enforces out of a text whose sender allows that, keyword by keyword, and says which.

What is left is enforced as ever. A keyword below `not` or `if` is not taken out by itself: the rest would
forbid more than was asked for. So that keyword goes with all that it holds.
"""

import json
from typing import Any, Final, NamedTuple

from guided_contract.errors import ErrorCode, GuidedError
from guided_contract.wire import Kind
from guided_grammar.json_schema import subschemas
from guided_grammar.json_schema.keywords import KEYWORDS
from guided_grammar.json_schema.subschemas import JsonPath
from guided_sidecar.grammar.schema import dialect
from guided_sidecar.grammar.worker_messages import Unenforced, unenforced

MOST: Final = 32  # keywords; a schema with more is compiled as vLLM compiles it
WHOLE: Final = Unenforced("$", "all")  # of a text of which nothing is promised

_TURNING: Final = ("if", "not")
_OTHER: Final = "other"


class _Step(NamedTuple):
    """A keyword on the way to a path: the schema that has it, and its own path."""

    schema: dict[str, Any]
    keyword: str
    path: str


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
        if error.code is ErrorCode.GRAMMAR_INVALID:  # what is left may contradict itself, which nobody wrote
            return bool(self.taken)
        if error.code is ErrorCode.GRAMMAR_DEAD_END:  # an author's, but where branches became alike
            return bool(self.taken) and self._first("oneOf") is not None
        is_private = (error.path or "").endswith(subschemas.step("", dialect.PRIVATE))
        return error.code is ErrorCode.GRAMMAR_UNSUPPORTED and not is_private

    def without(self, error: GuidedError) -> str | None:
        """Return the text without what a refusal is about, None if that is no keyword of a schema in it."""
        # Branches that have lost what told them apart leave nothing that one alone of them takes.
        is_empty = error.code in {ErrorCode.GRAMMAR_INVALID, ErrorCode.GRAMMAR_DEAD_END}
        path = self._first("oneOf") if is_empty else error.path
        if path is None or path in self._asked or len(self.taken) >= MOST:
            return None
        self._asked.add(path)
        for at, schema in self._schemas:
            if isinstance(schema, dict) and _leads(at, path):
                step = _take_out(schema, "$" + path.removeprefix(at))
                if step is None:
                    return None
                keyword = step.keyword if step.keyword in KEYWORDS else _OTHER
                self.taken.append(unenforced(subschemas.below(at, step.path), keyword))
                return json.dumps(self._value)
        return None

    def _first(self, keyword: str) -> str | None:
        found = ((at, subschemas.find(schema, keyword)) for at, schema in self._schemas)
        return next((subschemas.below(at, inner) for at, inner in found if inner is not None), None)

    def _note(self, way: JsonPath, schema: Any) -> Any:
        self._schemas.append((str(way), schema))
        return schema


def _take_out(root: dict[str, Any], path: str) -> _Step | None:
    """Change a schema so that it does without what has a path; return what that took."""
    steps = list(_steps(root, path))
    if not steps:
        return None
    turning = next((step for step in steps if step.keyword in _TURNING), None)
    step = turning or steps[-1]
    part = step.schema[step.keyword]
    if turning is None and step.keyword in subschemas.MAPS and step.keyword != "patternProperties":
        name = next((name for name in part if subschemas.step(step.path, name) == path), None)
        if name is not None:
            part[name] = True
            return step._replace(path=path)
    _drop(step.schema, step.keyword)
    return step


def _drop(schema: dict[str, Any], keyword: str) -> None:
    value = schema.pop(keyword)
    if keyword == "oneOf":  # one of them at least
        schema["allOf"] = [*schema.get("allOf", ()), {"anyOf": value}]
    elif keyword == "patternProperties":
        schema["additionalProperties"] = True
    elif keyword == "propertyNames":
        schema.setdefault("additionalProperties", True)


def _steps(root: dict[str, Any], path: str) -> list[_Step]:
    """Return the keywords on the way to a path, the outermost first."""
    return [
        _Step(place.schema, keyword, place.at(keyword))
        for place in subschemas.walk(root)
        if _leads(place.path, path)
        for keyword in place.schema
        if _leads(place.at(keyword), path)
    ]


def _leads(way: str, path: str) -> bool:
    return path == way or path.startswith((f"{way}.", f"{way}["))
