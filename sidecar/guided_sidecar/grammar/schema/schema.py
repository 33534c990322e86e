"""Whether a text is a JSON Schema at all, told in words for the developer who wrote it."""

import functools
import itertools
from collections.abc import Iterator
from typing import Any, Final

import jsonschema
from jsonschema.exceptions import best_match

from guided_contract.errors import ErrorCode, GuidedError
from guided_grammar.json_schema.subschemas import ROOT, JsonPath
from guided_sidecar.grammar.schema import faults, metaschema
from guided_sidecar.grammar.schema.faults import fault
from guided_sidecar.grammar.schema.limits import shown

_MOST_ERRORS: Final = 400  # that are looked for: a long schema has more, and each takes 0.5 ms
_EXCLUSIVE: Final = ("exclusiveMaximum", "exclusiveMinimum")


def check(schema: Any) -> None:
    """Check a schema against its metaschema: that of $schema, or draft 2020-12.

    Raises
    ------
    GuidedError
        grammar_invalid, or grammar_unsupported for draft 3. Its message has up to ten lines, each
        `path: what is wrong there`; its path and code are the first one's.
    """
    validator = _dialect(schema)
    faults.refuse(_faults(schema, validator))


def check_part(part: dict[str, Any], root: dict[str, Any], way: JsonPath) -> None:
    """Check what a reference leads to where no schema stands, against its root's metaschema, not its own.

    Raises
    ------
    GuidedError
        grammar_invalid, as `check` says it, with paths below `way`.
    """
    part = {**part, "$schema": root.get("$schema", metaschema.DRAFT_2020)}
    faults.refuse(faults.moved(one, str(way)) for one in _faults(part, _dialect(part)))


def _faults(schema: Any, validator: Any) -> Iterator[GuidedError]:
    """Yield what its metaschema has against a schema."""
    if metaschema.is_plainly_met(schema):
        return
    errors = itertools.islice(validator(validator.META_SCHEMA).iter_errors(schema), _MOST_ERRORS)
    # jsonschema looks at some properties in an order of its own, which differs between processes.
    for error in sorted(errors, key=lambda error: [str(key) for key in error.absolute_path]):
        best = best_match([error])
        yield fault(str(functools.reduce(JsonPath, best.absolute_path, ROOT)), _reason(best))


def _dialect(schema: Any) -> Any:
    """Return the validator class of a schema's dialect."""
    if isinstance(schema, dict) and "$schema" in schema:
        path, named = "$.$schema", schema["$schema"]
        if not isinstance(named, str):
            raise fault(path, f"{shown(named)} is not a string")
        try:
            validator = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
        except ValueError as error:  # it reads the text as an address
            raise fault(path, f"{shown(named)} is not a URI") from error
        if validator is jsonschema.Draft3Validator:
            reason = "draft 3 is not supported: use draft 4 or later"
            raise fault(path, reason, ErrorCode.GRAMMAR_UNSUPPORTED)
        return validator
    return jsonschema.Draft202012Validator


def _reason(error: Any) -> str:
    """Say what a metaschema has against a value."""
    value, keyword = shown(error.instance), error.path[-1] if error.path else ""
    if error.validator in ("anyOf", "enum") and keyword == "type":
        names = "array, boolean, integer, null, number, object or string"
        return f"{value} is not a JSON type; use {names}"
    if keyword == "items" and isinstance(error.instance, list):
        return f"{value} is an array: write prefixItems, or name an older draft in $schema"
    if keyword in _EXCLUSIVE and isinstance(error.instance, bool):
        meant = "write the number instead" if error.instance else "remove it"
        return f"{value} is a keyword of draft 4, which $schema does not name: {meant}"
    said: str = error.message
    return said.replace(repr(error.instance), value)
