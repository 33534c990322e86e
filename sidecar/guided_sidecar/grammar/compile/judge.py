"""Whether a text is valid under a JSON Schema, as jsonschema sees it; what it cannot tell counts as valid."""

import decimal
import functools
import itertools
import json
import re
import warnings
from collections.abc import Iterator
from decimal import Decimal
from typing import Any, NoReturn

import jsonschema
import referencing

from guided_grammar.json_schema import subschemas


class Judge:
    """Judges texts by one schema.

    Parameters
    ----------
    spec
        The schema's text; it has been checked.
    """

    def __init__(self, spec: str) -> None:
        # Decimals, since a grammar writes longer numbers than a float holds.
        self._schema = json.loads(spec, parse_float=Decimal)

    def violation(self, text: bytes) -> str | None:
        """Return the JSONPath of a keyword that a text violates, "$" where it is no JSON; None: of none."""
        try:
            value = json.loads(text.decode(), parse_float=Decimal, parse_constant=_refuse)
        except (decimal.DecimalException, UnicodeDecodeError):
            return None  # an exponent that no number has; xgrammar's classes take what is no UTF-8
        except ValueError as error:
            return None if "digits" in str(error) else "$"  # Python reads no number of thousands of digits
        found = jsonschema.validators.validator_for(self._schema, default=jsonschema.Draft202012Validator)
        judge = _exact(found)(self._schema, registry=referencing.Registry())  # which fetches nothing
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of what a regex may mean in a later Python
                violated = next(judge.iter_errors(value), None)
        except MemoryError:
            raise
        except Exception:  # noqa: BLE001 - a reference to what is no schema, a regex that Python has not, ...
            return None
        if violated is None:
            return None
        there = (place for place in subschemas.places(self._schema) if place.schema is violated.schema)
        place = next(there, None)  # none where a reference leads below no keyword
        return "$" if place is None else place.at(str(violated.validator))


@functools.cache
def _exact(validator: Any) -> Any:
    """Return a dialect's validator that takes decimals, and reads a regex as kindly as it can be read."""
    checker = validator.TYPE_CHECKER.redefine("integer", _is_integer)
    extend: Any = jsonschema.validators.extend
    return extend(validator, {"pattern": _pattern}, type_checker=checker)


def _is_integer(_checker: Any, instance: Any) -> bool:
    if isinstance(instance, Decimal):
        return instance == instance.to_integral_value()
    return isinstance(instance, int) and not isinstance(instance, bool)


def _pattern(validator: Any, pattern: str, instance: Any, _schema: Any) -> Iterator[Any]:
    if not validator.is_type(instance, "string"):
        return
    # Classes of ASCII alone or of all Unicode: libraries differ, and so do readers of JSON Schema.
    # U+FEFF: ECMA's \s has it, and Python's has not.
    texts = (instance, instance.replace("\ufeff", "\xa0"))
    ways = itertools.product(texts, (re.ASCII, re.UNICODE))
    if not any(re.search(pattern, text, flags) for text, flags in ways):
        yield jsonschema.ValidationError("no match")


def _refuse(_constant: str) -> NoReturn:
    raise ValueError("a constant that is no JSON")
