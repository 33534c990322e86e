"""A grammar as it is read, and which backends may serve it, in which order."""

import itertools
import json
import re
from collections.abc import Collection, Iterator
from typing import Any, Final, NamedTuple

from guided_contract.backends import NAMES
from guided_contract.errors import ErrorCode, GuidedError
from guided_contract.wire import Backend, Kind
from guided_grammar import rules
from guided_grammar.backend import Unsupported
from guided_grammar.json_schema import subschemas
from guided_grammar.json_schema.subschemas import JsonPath
from guided_grammar.registry import library
from guided_sidecar.grammar import trust
from guided_sidecar.grammar.schema import endless, faults, normal, reference_depth, schema
from guided_sidecar.grammar.worker_messages import Job

_NESTED: Final = re.compile(r"[*+}][^()]*(?:\)[^()]*)*\)[*+{]")  # a repeat within a group that is repeated
_KEYWORD: Final = re.compile(r"\.(\w+)")
_CONDITIONS: Final = ("not", "if", "contains", "dependentRequired", "dependentSchemas", "dependencies")
# What a keyword of the normal form may have been written for.
_WRITTEN_FOR: Final = {
    "additionalProperties": ("propertyNames", "unevaluatedProperties"),
    "allOf": ("pattern", "uniqueItems", "minProperties", "maxProperties", *_CONDITIONS),
    "anyOf": ("oneOf", "minProperties", "maxProperties", "type", *_CONDITIONS),
    "enum": ("const", "uniqueItems"),
    "pattern": ("format", "oneOf", *_CONDITIONS),
    "patternProperties": ("propertyNames",),
}


class Grammar(NamedTuple):
    """What a job asks for.

    Attributes
    ----------
    value
        Of json and structural tags the text parsed, its schemas in their normal form; else the text. None: it
        is compiled as it came, and nothing is promised of it.
    schemas
        All JSON schemas in it, in their normal form.
    """

    kind: Kind
    value: Any
    schemas: list["Schema"]


class Schema(NamedTuple):
    """One JSON schema of a grammar.

    Attributes
    ----------
    path
        Its JSONPath in the grammar's text.
    form
        Its normal form.
    written
        As it came.
    """

    path: str
    form: Any
    written: Any

    def at(self, inner: str | None) -> str:
        """Return the path in the grammar's text of what has a path in the normal form."""
        inner = inner or "$"
        path = subschemas.nearest(self.written, inner)
        if lost := _KEYWORD.match(inner, len(path)):
            instead = (subschemas.step(path, keyword) for keyword in _WRITTEN_FOR.get(lost[1], ()))
            path = next((one for one in instead if subschemas.nearest(self.written, one) == one), path)
        return subschemas.below(self.path, path)


def read(job: Job) -> Grammar:
    """Parse and check a job's text.

    Raises
    ------
    GuidedError
        A schema in it is wrong, with its path.
    """
    if job.kind == "json":
        written = json.loads(job.spec)
        form = _normal(written)
        return Grammar(job.kind, form, [Schema("$", form, written)])
    if job.kind == "regex" and (len(job.spec) - len(job.spec.rstrip("\\"))) % 2:
        raise GuidedError(ErrorCode.GRAMMAR_INVALID, "the regex is broken: it ends in a backslash")
    if job.kind != "structural_tag":
        return Grammar(job.kind, job.spec, [])
    schemas: list[Schema] = []

    def normalised(way: JsonPath, written: Any) -> Any:
        path = str(way)
        try:
            form = _normal(written)
        except GuidedError as error:
            raise faults.moved(error, path) from error
        schemas.append(Schema(path, form, written))
        return form

    return Grammar(job.kind, subschemas.with_each_of_tag(json.loads(job.spec), normalised), schemas)


def _normal(written: Any) -> Any:
    """Check a JSON schema, and return its normal form."""
    schema.check(written)
    form = endless.cut(normal.form(written))
    reference_depth.check(form)
    return form


def repeating(grammar: Grammar) -> dict[str, str]:
    """Return the patterns of a grammar's schemas that repeat what repeats, with the path of one each."""
    found: dict[str, str] = {}
    for inner in grammar.schemas:
        if not _has_patterns(inner.form):
            continue
        for place in subschemas.walk(inner.form):
            names = [*place.schema.get("patternProperties", ())]
            for pattern in [place.schema.get("pattern"), *names]:
                if isinstance(pattern, str) and _NESTED.search(pattern) and pattern not in found:
                    keyword = "patternProperties" if pattern in names else "pattern"
                    found[pattern] = inner.at(place.at(keyword))
    return found


def _has_patterns(form: Any) -> bool:
    return any("pattern" in part or "patternProperties" in part for part in subschemas.within(form))


def order(job: Job, grammar: Grammar) -> Iterator[Backend]:
    """Return the backends to try, in order: those that enforce all of the grammar, looked at when asked for.

    Raises
    ------
    GuidedError
        grammar_unsupported, with the keyword's path: none does, or the first choice does not and no other
        may be taken.
    """
    candidates = preferred(grammar.kind, job.backends) if job.named is None else [*job.backends]
    doubted = _doubted(job, grammar)
    trusted = [backend for backend in candidates if backend not in doubted]
    if not job.routes:
        del trusted[1:]
    able = (backend for backend in trusted if _unsupported(backend, grammar) is None)
    first = next(able, None)
    if first is not None:
        return itertools.chain([first], able)
    missing = _unsupported(trusted[0], grammar) if trusted else None
    where = f"{missing.path}: " if missing is not None and missing.path else ""
    reasons = [missing.reason] if missing is not None else []
    reasons += [trust.reason(backend, job.unmeasured[backend]) for backend in doubted]
    path = missing.path if missing is not None else None
    raise GuidedError(ErrorCode.GRAMMAR_UNSUPPORTED, where + "; ".join(reasons), path=path)


def _doubted(job: Job, grammar: Grammar) -> list[Backend]:
    """Return the backends that nobody named, and of which nobody knows whether they enforce the grammar."""
    if not job.unmeasured or not any(rules.are_about(inner.form) for inner in grammar.schemas):
        return []
    return [backend for backend in job.backends if backend in job.unmeasured and backend != job.named]


def preferred(kind: Kind, backends: Collection[Backend]) -> list[Backend]:
    """Return backends, first those whose `first_for` has the kind, else in the order of their table."""
    known = [backend for backend in NAMES.values() if backend in backends]
    return sorted(known, key=lambda backend: kind not in library(backend).first_for)


def _unsupported(backend: Backend, grammar: Grammar) -> Unsupported | None:
    """Return what a backend would take and not enforce."""
    asked = library(backend)
    if grammar.kind != "json" and (found := asked.lacks(grammar.kind, grammar.value)):
        return found
    for inner in grammar.schemas:
        if found := asked.lacks("json", inner.form):
            return found._replace(path=inner.at(found.path))
    return None
