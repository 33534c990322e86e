"""A grammar as it is read, and which backends may serve it, in which order."""

import itertools
import json
import re
from collections.abc import Collection, Iterator, Sequence
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
from guided_sidecar.grammar.schema import endless, faults, normal, schema
from guided_sidecar.grammar.schema.origins import Form
from guided_sidecar.grammar.worker_messages import Job

_WIDE: Final = frozenset(["anyOf", "enum", "patternProperties", "properties"])
_MANY: Final = 64  # alternatives, of which a few such keywords are too many
_IN_TOOLS: Final = "leave it out in tools of this parser and in tags like its: a response_format may have it"
_NESTED: Final = re.compile(r"[*+}][^()]*(?:\)[^()]*)*\)[*+{]")  # a repeat within a group that is repeated


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
    schemas: list[Form]


def read(job: Job) -> Grammar:
    """Parse and check a job's text.

    Raises
    ------
    GuidedError
        A schema in it is wrong, with its path.
    """
    if job.kind == "json":
        made = _normal(json.loads(job.spec))
        return Grammar(job.kind, made.schema, [made])
    if job.kind == "regex" and (len(job.spec) - len(job.spec.rstrip("\\"))) % 2:
        raise GuidedError(ErrorCode.GRAMMAR_INVALID, "the regex is broken: it ends in a backslash")
    if job.kind != "structural_tag":
        return Grammar(job.kind, job.spec, [])
    schemas: list[Form] = []

    def normalised(way: JsonPath, written: Any) -> Any:
        path = str(way)
        try:
            made = _normal(written)
        except GuidedError as error:
            raise faults.moved(error, path) from error
        schemas.append(made._replace(path=path))
        return made.schema

    return Grammar(job.kind, subschemas.with_each_of_tag(json.loads(job.spec), normalised), schemas)


def _normal(written: Any) -> Form:
    """Check a JSON schema, and return its normal form."""
    schema.check(written)
    made = normal.read(written)
    try:
        endless.cut(made.schema)
    except GuidedError as error:
        raise made.told(faults.placed(error, made.at(error.path))) from error
    return made


def repeating(grammar: Grammar) -> dict[str, str]:
    """Return the patterns of a grammar's schemas that repeat what repeats, with the path of one each."""
    found: dict[str, str] = {}
    for inner in grammar.schemas:
        if not _has_patterns(inner.schema):
            continue
        for place in subschemas.walk(inner.schema):
            names = [*place.schema.get("patternProperties", ())]
            for pattern in [place.schema.get("pattern"), *names]:
                if isinstance(pattern, str) and _NESTED.search(pattern) and pattern not in found:
                    keyword = "patternProperties" if pattern in names else "pattern"
                    found[pattern] = inner.at(place.at(keyword))
    return found


def widest(grammar: Grammar) -> str | None:
    """Return the path of the keyword that gives the most alternatives in a grammar's schemas."""
    found = [
        (len(place.schema[keyword]), inner.at(place.at(keyword)))
        for inner in grammar.schemas
        for place in subschemas.walk(inner.schema)
        for keyword in _WIDE & place.schema.keys()
        if len(place.schema[keyword]) > _MANY
    ]
    return max(found)[1] if found else "$" if grammar.schemas else None


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
    lacking = _missing(trusted, grammar)
    reasons = [lacking.reason] if lacking is not None else []
    reasons += [trust.reason(backend, job.unmeasured[backend]) for backend in doubted]
    path = lacking.path if lacking is not None else None
    where = f"{path}: " if path else ""
    raise GuidedError(ErrorCode.GRAMMAR_UNSUPPORTED, where + "; ".join(reasons), path=path)


def refused(backends: Sequence[Backend], grammar: Grammar) -> list[GuidedError]:
    """Return why no other backend was asked for a grammar."""
    if (lacking := _missing(backends, grammar)) is None:
        return []
    message = f"{lacking.path}: {lacking.reason}"
    return [GuidedError(ErrorCode.GRAMMAR_UNSUPPORTED, message, path=lacking.path)]


def _missing(backends: Sequence[Backend], grammar: Grammar) -> Unsupported | None:
    """Return what the first of the backends does not enforce; of a tag, what the one does that reads it."""
    found = [one for backend in backends if (one := _unsupported(backend, grammar)) is not None]
    if grammar.kind == "structural_tag":
        for one in found:
            if any((one.path or "").startswith(made.path) for made in grammar.schemas):
                return one._replace(reason=f"{one.reason}; {_IN_TOOLS}")
    return next(iter(found), None)


def _doubted(job: Job, grammar: Grammar) -> list[Backend]:
    """Return the backends that nobody named, and of which nobody knows whether they enforce the grammar."""
    if not job.unmeasured or not any(rules.are_about(inner.schema) for inner in grammar.schemas):
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
        if found := asked.lacks("json", inner.schema):
            return found._replace(path=inner.at(found.path))
    return None
