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
_NAMED: Final = tuple(keyword for keyword in subschemas.MAPS if keyword != "patternProperties")


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
        """Take out what a refusal is about; if that is no keyword of a schema in it, promise nothing.

        Raises
        ------
        GuidedError
            That refusal: it is not of what is not enforced, or of an option of one library.
        """
        # What is left may contradict itself, which nobody wrote.
        is_ours = self.taken and error.code in {ErrorCode.GRAMMAR_INVALID, ErrorCode.GRAMMAR_DEAD_END}
        is_private = (error.path or "").endswith(subschemas.step("", dialect.PRIVATE))
        is_allowed = is_ours or (error.code is ErrorCode.GRAMMAR_UNSUPPORTED and not is_private)
        if WHOLE in self.taken or not is_allowed:
            raise error
        if not self._is_taken(error.path):
            self.written, self.taken = self._asked, [WHOLE]

    def _is_taken(self, path: str | None) -> bool:
        """Take out what has a path, if there is a keyword of a schema."""
        if path is None or len(self.taken) >= MOST:
            return False
        if self.written is self._asked:
            self.written = json.loads(json.dumps(self._asked))
        for at, schema in self._schemas():
            steps = list(_steps(schema, "$" + path.removeprefix(at))) if _leads(at, path) else []
            if steps:
                keyword, taken = _take_out(*steps[-1], "$" + path.removeprefix(at))
                known = keyword if keyword in KEYWORDS else _OTHER
                self.taken.append(unenforced(subschemas.below(at, taken), known))
                return True
        return False

    def _schemas(self) -> list[tuple[str, Any]]:
        """Return the schemas in what is left, each with its path."""
        if self._kind == "json":
            return [("$", self.written)]
        found: list[tuple[str, Any]] = []
        if self._kind == "structural_tag":
            subschemas.with_each_of_tag(self.written, lambda way, one: found.append((str(way), one)))
        return found


def _take_out(place: subschemas.Place, keyword: str, path: str) -> tuple[str, str]:
    """Change a schema so that it does without what has a path; return what that took: keyword and path."""
    schema, own = place.schema, place.at(keyword)
    # Whose schema is gone already, the name itself is what is refused: all go with it.
    named = [name for name, one in schema[keyword].items() if one is not True] if keyword in _NAMED else ()
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
