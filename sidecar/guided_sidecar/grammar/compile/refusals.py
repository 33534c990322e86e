"""What a library's refusal is about: its code, and the path of the keyword that the library's words name.

A schema that was read is valid: what a library does not take of it, the library cannot do. Of a regex that is
so if Python or another library reads it; of other grammars the library's words tell, and the other one.
"""

import contextlib
import functools
import json
import re
from collections.abc import Iterator, Mapping
from typing import Final

from guided_contract.errors import ErrorCode, GuidedError
from guided_contract.wire import Backend, Kind
from guided_grammar.backend import Backend as GrammarBackend
from guided_grammar.backend import BackendError
from guided_grammar.json_schema import subschemas
from guided_grammar.json_schema.keywords import CONSTRAINTS
from guided_sidecar.grammar.compile import heard, routing
from guided_sidecar.grammar.compile.reading import Grammar
from guided_sidecar.grammar.schema import patterns
from guided_sidecar.grammar.schema.faults import fault
from guided_sidecar.grammar.schema.origins import PARTLY, Form
from guided_sidecar.grammar.worker_errors import ran_out_of_memory
from guided_sidecar.grammar.worker_messages import Job

# What a library says of keywords that it does not name, or of which it names others.
_MEANT: Final = {
    "min/maxProperties": "minProperties maxProperties",
    "empty range": "minimum maximum exclusiveMinimum exclusiveMaximum",
}
# Each library's words for a schema that nothing meets, and for what it does not do.
_EMPTY: Final = ("nsatisfiable", "must not be empty")
_LIMIT: Final = ("support", "Unimplemented", "ignored")
_WIDE: Final = frozenset(["anyOf", "enum", "patternProperties", "properties"])
_WORD: Final = re.compile(r"[A-Za-z$]+")
_QUOTED: Final = 200  # characters of a pattern: of a long message, `one_line` keeps the first 250


class Refusals:
    """Why libraries refused one grammar, in the order in which they were asked.

    Parameters
    ----------
    backends
        The libraries, which are asked again for the parts of the grammar and whether others read it.
    """

    def __init__(self, job: Job, grammar: Grammar, backends: Mapping[Backend, GrammarBackend]) -> None:
        self._job = job
        self._grammar = grammar
        self._backends = backends
        self._errors: list[GuidedError] = []

    @contextlib.contextmanager
    def noted(self, backend: Backend) -> Iterator[None]:
        """Note why a library, or we ourselves, refuse in the block what it makes of the grammar.

        Raises
        ------
        GuidedError
            It says nothing of the grammar.
        """
        try:
            yield
        except GuidedError as error:
            if error.code.retryable:
                raise
            self._errors.append(error)
        except BackendError as refusal:
            if ran_out_of_memory(str(refusal)):
                raise GuidedError(ErrorCode.GRAMMAR_COMPILE_MEMORY) from refusal
            self._errors.append(self._explained(backend, str(refusal)))

    def clearest(self) -> GuidedError:
        """Return what the developer reads: the first error with a keyword's path, else the first."""
        first = self._errors[0]
        # Of a tag as a whole: it says nothing of the schemas in it.
        if self._job.kind == "structural_tag" and first.path == "$.format":
            first = routing.missing(self._job.backends, self._grammar) or first
        found = next((error for error in (first, *self._errors) if error.path not in (None, "$")), first)
        return functools.reduce(lambda told, made: made.told(told), self._grammar.schemas, found)

    def _explained(self, backend: Backend, said: str) -> GuidedError:
        """Turn a library's words into our error."""
        grammar, reason = self._grammar, f"{backend}: {heard.plain(said)}"
        for made in grammar.schemas:
            if grammar.kind == "json" or self._is_refused(backend, "json", json.dumps(made.schema)):
                return self._of_schema(made, backend, said, reason)
        if grammar.value is None:
            return GuidedError(ErrorCode.GRAMMAR_UNSUPPORTED, reason)
        if grammar.kind == "regex":
            broken = patterns.broken(grammar.value)
            if broken is None or self._is_read_by_others(backend):
                return GuidedError(ErrorCode.GRAMMAR_UNSUPPORTED, reason)
            return GuidedError(ErrorCode.GRAMMAR_INVALID, f"the regex is not valid: {broken}")
        is_limit = any(word in said for word in _LIMIT)
        code = ErrorCode.GRAMMAR_UNSUPPORTED if is_limit else ErrorCode.GRAMMAR_INVALID
        if grammar.kind == "structural_tag":
            return fault("$" if "structures" in grammar.value else "$.format", reason, code)
        return GuidedError(code, reason)

    def _of_schema(self, made: Form, backend: Backend, said: str, reason: str) -> GuidedError:
        path = _path(made, said)
        if not any(words in said for words in _EMPTY):
            return fault(path, reason, ErrorCode.GRAMMAR_UNSUPPORTED)
        if "$defs" in made.schema:  # of an empty one, llguidance refuses whatever refers to it
            reason = "no value satisfies the schema, or a schema that it references"
            return fault(path, reason, ErrorCode.GRAMMAR_UNSUPPORTED)
        if self._is_refused(backend, "json", json.dumps(made.schema)):  # and not only with objects closed
            return fault(path, "no value satisfies the schema", ErrorCode.GRAMMAR_DEAD_END)
        return fault(path, PARTLY, ErrorCode.GRAMMAR_UNSUPPORTED)

    def _is_read_by_others(self, backend: Backend) -> bool:
        others = (one for one in self._backends if one != backend)
        return any(not self._is_refused(one, self._job.kind, self._grammar.text()) for one in others)

    def _is_refused(self, backend: Backend, kind: Kind, text: str) -> bool:
        try:
            heard.compiled(self._backends[backend], kind, text)
        except BackendError:
            return True
        return False


def proven(grammar: Grammar, code: ErrorCode, message: str, path: str | None) -> GuidedError:
    """Return the refusal of what a walk of the proof found, at the keyword that it is about."""
    path = path or ("$" if grammar.schemas else None)
    if path == "$" and heard.MANY in message:
        path = _widest(grammar)
        message = f"{path}: {message}"
    return GuidedError(code, message, path=path)


def _widest(grammar: Grammar) -> str:
    """Return the path of the keyword that gives the most alternatives in a grammar's schemas."""
    found = [
        (len(value), made.at(place.at(keyword)))
        for made in grammar.schemas
        for place in subschemas.places(made.schema)
        for keyword, value in place.schema.items()
        if keyword in _WIDE
    ]
    return max(found, default=(0, "$"))[1]


def _path(made: Form, said: str) -> str:
    """Return the path of the keyword that a library's words are about, of the schema if they name none."""
    said = next((keywords for phrase, keywords in _MEANT.items() if phrase in said), said)
    words = CONSTRAINTS.intersection(_WORD.findall(said)) - {"type"}
    only = [keyword for keyword in made.schema if keyword in CONSTRAINTS]
    best, found = 0, subschemas.step("$", only[0]) if len(only) == 1 else "$"
    is_empty = any(one in said for one in _EMPTY)
    for place in subschemas.places(made.schema):
        for keyword, value in place.schema.items():
            if is_empty and value == []:
                return made.at(place.at(keyword))
            quotable = {"pattern": [value], "patternProperties": value}.get(keyword, ())
            quoted = (1 + len(pattern) for pattern in quotable if pattern[:_QUOTED] in said)
            if (more := max(quoted, default=int(keyword in words))) > best:
                best, found = more, place.at(keyword)
    return made.at(found)
