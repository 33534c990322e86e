"""Whether a text is a JSON Schema at all, told in words for the developer who wrote it."""

from typing import Any, Final

import jsonschema
from jsonschema.exceptions import best_match

from guided_contract.errors import ErrorCode, GuidedError
from guided_sidecar.grammar import metaschema, subschemas

_TYPES: Final = ("array", "boolean", "integer", "null", "number", "object", "string")
_SHOWN_CHARACTERS: Final = 80
_NAMES: Final = ("dependencies", "dependentRequired", "required", "type")
_COUNTS: Final = (
    "maxContains",
    "maxItems",
    "maxLength",
    "maxProperties",
    "minContains",
    "minItems",
    "minLength",
    "minProperties",
)


def check(schema: Any) -> None:
    """Check a schema against its metaschema (that of $schema, or draft 2020-12), its references and lengths.

    Raises
    ------
    GuidedError
        grammar_invalid, or grammar_unsupported for draft 3 and for a reference that leaves the schema; with
        the path.
    """
    validator = _dialect(schema)
    if not metaschema.is_plainly_met(schema):
        _check_metaschema(schema, validator)
    places = list(subschemas.walk(schema))
    has_inner_base = any("$id" in place.schema for place in places if place.path != "$")
    for place in places:
        _check_reference(schema, place, has_inner_base=has_inner_base)
        _check_lengths(place)


def write_whole_numbers(schema: Any) -> None:
    """Write 2 for 2.0 in a checked schema where a number counts: no library reads the other."""
    if metaschema.is_plainly_met(schema):
        return  # which takes no 2.0
    for place in subschemas.walk(schema):
        for keyword in _COUNTS:
            if isinstance(place.schema.get(keyword), float) and place.schema[keyword].is_integer():
                place.schema[keyword] = int(place.schema[keyword])


def _check_metaschema(schema: Any, validator: Any) -> None:
    for place in subschemas.walk(schema):
        _check_names(place)
    error = best_match(validator(validator.META_SCHEMA).iter_errors(schema))
    if error is not None:
        path = error.json_path
        raise GuidedError(ErrorCode.GRAMMAR_INVALID, f"{path}: {_reason(error)}", path=path)


def _check_names(place: subschemas.Place) -> None:
    """Refuse lists of names that hold anything else: jsonschema compares such items with all others."""
    for keyword in _NAMES:
        value = place.schema.get(keyword)
        lists = value.values() if isinstance(value, dict) else [value]
        for names in lists:
            if isinstance(names, list) and not all(isinstance(name, str) for name in names):
                path = place.at(keyword)
                message = f"{path}: {_shown(names)} is not a list of texts"
                raise GuidedError(ErrorCode.GRAMMAR_INVALID, message, path=path)


def _dialect(schema: Any) -> Any:
    """Return the validator class of a schema's dialect."""
    if isinstance(schema, dict) and "$schema" in schema:
        path, named = "$.$schema", schema["$schema"]
        if not isinstance(named, str):
            raise GuidedError(
                ErrorCode.GRAMMAR_INVALID, f"{path}: {_shown(named)} is not a string", path=path
            )
        try:
            validator = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
        except ValueError as error:  # it reads the text as an address
            message = f"{path}: {_shown(named)} is not a URI"
            raise GuidedError(ErrorCode.GRAMMAR_INVALID, message, path=path) from error
        if validator is jsonschema.Draft3Validator:
            message = f"{path}: draft 3 is not supported; later drafts are"
            raise GuidedError(ErrorCode.GRAMMAR_UNSUPPORTED, message, path=path)
        return validator
    return jsonschema.Draft202012Validator


def _reason(error: Any) -> str:
    value = _shown(error.instance)
    if error.validator in ("anyOf", "enum") and error.path and error.path[-1] == "type":
        return f"{value} is not a JSON type; those are {', '.join(_TYPES)}"
    message = str(error.message)
    return message if len(message) <= 4 * _SHOWN_CHARACTERS else f"{value} is not allowed here"


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"


def _check_reference(schema: Any, place: subschemas.Place, *, has_inner_base: bool) -> None:
    reference = place.schema.get("$ref")
    if not isinstance(reference, str):
        return
    path = place.at("$ref")
    if not reference.startswith("#"):
        if has_inner_base or "$id" in schema:
            return  # it may name a schema inside this one; the backend finds out
        message = f"{path}: {_shown(reference)} is outside of the schema, and nothing is fetched"
        raise GuidedError(ErrorCode.GRAMMAR_UNSUPPORTED, message, path=path)
    # Below an address of its own, a schema's paths begin there: the backend finds out.
    if reference.startswith("#/") and not has_inner_base and not _exists(schema, reference):
        message = f"{path}: {_shown(reference)} does not exist in the schema"
        raise GuidedError(ErrorCode.GRAMMAR_INVALID, message, path=path)


def _check_lengths(place: subschemas.Place) -> None:
    """Refuse a string that cannot be; among other types, or without one, the schema still has values."""
    minimum, maximum = place.schema.get("minLength", 0), place.schema.get("maxLength")
    if maximum is not None and minimum > maximum and place.types() == {"string"}:
        path = place.at("minLength")
        message = f"{path}: no string has at least {minimum} and at most {maximum} characters"
        raise GuidedError(ErrorCode.GRAMMAR_INVALID, message, path=path)


def _exists(schema: Any, pointer: str) -> bool:
    try:
        subschemas.referred(schema, pointer)
    except LookupError:
        return "%" in pointer  # an escaped name; the backend finds out
    return True
