"""A job's text as it is read: what it holds, checked, its schemas in their normal form."""

import functools
import json
from typing import Any, NamedTuple

from guided_contract.errors import ErrorCode, GuidedError
from guided_contract.wire import Kind
from guided_grammar.json_schema import subschemas
from guided_grammar.json_schema.subschemas import JsonPath
from guided_sidecar.grammar.schema import faults, normal, schema, tag_words
from guided_sidecar.grammar.schema.origins import Form
from guided_sidecar.grammar.worker_messages import Job


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
    """Parse and check a job's text, which is within its limits.

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
    tag = json.loads(job.spec)
    tag_words.check(tag)
    schemas: list[Form] = []

    def normalised(way: JsonPath, written: Any) -> Any:
        path = str(way)
        try:
            made = _normal(written)
        except GuidedError as error:
            raise faults.moved(error, path) from error
        schemas.append(made._replace(path=path))
        return made.schema

    return Grammar(job.kind, subschemas.with_each_of_tag(tag, normalised), schemas)


def told(grammar: Grammar, error: GuidedError) -> GuidedError:
    """Return a refusal of a grammar's forms as one of its schemas as they were written."""
    return functools.reduce(lambda told, made: made.told(told), grammar.schemas, error)


def _normal(written: Any) -> Form:
    """Check a JSON schema, and return its normal form."""
    schema.check(written)
    return normal.read(written)
