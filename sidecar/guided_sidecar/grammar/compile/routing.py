"""Which backends may serve a grammar, in which order.

`Auto` is one sentence: llguidance for JSON, regexes, choices and the tags that it can write, xgrammar for
EBNF and other tags, and what the first does not enforce goes to the other, else it is refused. Who names a
library has that one asked first, or alone.
"""

import itertools
from collections.abc import Collection, Iterator, Sequence
from typing import Final

from guided_contract.backends import NAMES
from guided_contract.errors import ErrorCode, GuidedError
from guided_contract.wire import Backend, Kind
from guided_grammar.backend import Unsupported
from guided_grammar.json_schema.keywords import CONSTRAINTS
from guided_grammar.json_schema.subschemas import within
from guided_grammar.registry import library
from guided_sidecar.grammar import trust
from guided_sidecar.grammar.compile.reading import Grammar
from guided_sidecar.grammar.worker_messages import Job

_IN_TOOLS: Final = (
    "remove it from tools of this parser and from similar structural tags; a response_format supports it"
)


def order(job: Job, grammar: Grammar) -> Iterator[Backend]:
    """Return the backends to try, in order: those that enforce all of the grammar, looked at when asked for.

    Raises
    ------
    GuidedError
        grammar_unsupported, with the keyword's path: none does, or the first choice does not and no other
        may be taken.
    """
    if grammar.value is None:
        return iter(job.backends)
    candidates = preferred(grammar.kind, job.backends) if job.named is None else [*job.backends]
    doubted = _doubted(job, grammar)
    trusted = [backend for backend in candidates if backend not in doubted]
    if not job.routes:
        del trusted[1:]
    able = (backend for backend in trusted if _unsupported(backend, grammar) is None)
    first = next(able, None)
    if first is not None:
        return itertools.chain([first], able)
    lacking = missing(trusted, grammar)
    reasons = [lacking.message] if lacking is not None else []
    reasons += [trust.reason(backend, job.unmeasured[backend]) for backend in doubted]
    path = lacking.path if lacking is not None else None
    raise GuidedError(ErrorCode.GRAMMAR_UNSUPPORTED, "; ".join(reasons), path=path)


def missing(backends: Sequence[Backend], grammar: Grammar) -> GuidedError | None:
    """Return what the first of the backends does not enforce; of a tag, what the one does that reads it."""
    found = [one for backend in backends if (one := _unsupported(backend, grammar)) is not None]
    lacking = next(iter(found), None)
    if grammar.kind == "structural_tag":
        for one in found:
            if any((one.path or "").startswith(made.path) for made in grammar.schemas):
                lacking = one._replace(reason=f"{one.reason}; {_IN_TOOLS}")
                break
    if lacking is None:
        return None
    where = f"{lacking.path}: " if lacking.path else ""
    return GuidedError(ErrorCode.GRAMMAR_UNSUPPORTED, where + lacking.reason, path=lacking.path)


def _doubted(job: Job, grammar: Grammar) -> list[Backend]:
    """Return the backends that nobody named, and of which nobody knows whether they enforce the grammar."""
    asked = (one for inner in grammar.schemas for one in within(inner.schema))
    if not job.unmeasured or all(map(CONSTRAINTS.isdisjoint, asked)):
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
