"""What a library is to compile of a grammar, and what ranks follow beside it."""

import json
from typing import Any, Final

from guided_contract.counting import Position
from guided_contract.errors import ErrorCode
from guided_contract.wire import Backend
from guided_grammar.json_schema import subschemas
from guided_grammar.registry import library
from guided_sidecar.grammar.compile import followed, tagged
from guided_sidecar.grammar.compile.reading import Grammar
from guided_sidecar.grammar.schema import additional_properties
from guided_sidecar.grammar.schema.faults import fault
from guided_sidecar.grammar.worker_messages import Job

Relaxed = tuple[str, list[Position]]  # the text to compile, and what ranks follow beside it

_UNSUPPORTED: Final = ErrorCode.GRAMMAR_UNSUPPORTED
_UNIQUE: Final = "uniqueItems"
_REASON: Final = (
    "uniqueItems is supported only for items that are an enum of a few values, or strings and numbers "
    "without maxLength, pattern or bounds, if no other schema applies to the array"
)
_IN_TAGS: Final = "; in a structural tag, only if the text before the value marks its beginning"


def of(job: Job, grammar: Grammar, backend: Backend) -> Relaxed:
    """Return what a library is to compile of a grammar; of one that was not read its text as it came."""
    if grammar.value is None or not grammar.schemas:
        return grammar.text(), []
    left: list[Any] = []
    if job.kind == "json":
        relaxed = followed.split(_meant(grammar.value, job, backend), backend)
        left.append(relaxed.schema)
    else:
        tag = subschemas.with_each_of_tag(grammar.value, lambda _, form: _meant(form, job, backend))
        is_split = job.kind in library(backend).first_for  # of which tagged.py knows what it takes
        relaxed = tagged.split(tag, backend) if is_split else followed.Followed(tag, [])
        subschemas.with_each_of_tag(relaxed.schema, lambda _, schema: left.append(schema))
    for made, schema in zip(grammar.schemas, left, strict=True):
        if any(_UNIQUE in part for part in subschemas.within(schema)):  # what no library enforces
            path = made.at(subschemas.find(schema, _UNIQUE))
            raise fault(path, _REASON if job.kind == "json" else f"{_REASON}{_IN_TAGS}", _UNSUPPORTED)
    return json.dumps(relaxed.schema), relaxed.positions


def _meant(form: Any, job: Job, backend: Backend) -> Any:
    # A library that was asked for by name compiles the schema as vLLM would have it compile it.
    spells = library(backend).compares_spellings
    return additional_properties.close(form, closes=backend != job.named, spells=spells)
