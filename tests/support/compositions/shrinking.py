"""A smaller schema of which a finding still holds."""

import dataclasses
from collections.abc import Iterator
from typing import Any

from support.compositions.attempt import Attempt, Finding


def shrunk(attempt: Attempt, finding: Finding) -> Finding:
    """Leave out of a schema what the finding does not need."""
    schema = finding.schema
    goes_on = True
    while goes_on:
        goes_on = False
        for smaller in _smaller(schema):
            if attempt.is_still(finding, smaller):
                schema, goes_on = smaller, True
                break
    return dataclasses.replace(finding, schema=schema)


def _smaller(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        for key in value:
            yield {name: part for name, part in value.items() if name != key}
        for key, part in value.items():
            for smaller in _smaller(part):
                yield {**value, key: smaller}
    elif isinstance(value, list):
        for index in range(len(value)):
            yield value[:index] + value[index + 1 :]
        for index, part in enumerate(value):
            for smaller in _smaller(part):
                yield [*value[:index], smaller, *value[index + 1 :]]
