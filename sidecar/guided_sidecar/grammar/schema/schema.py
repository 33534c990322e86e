"""Whether a text is a JSON Schema at all, told in words for the developer who wrote it."""

import functools
import itertools
from collections.abc import Callable, Iterable
from typing import Any, Final

import jsonschema
from jsonschema.exceptions import best_match

from guided_contract.errors import ErrorCode, GuidedError
from guided_grammar.json_schema import subschemas
from guided_grammar.json_schema.subschemas import ROOT, Place
from guided_sidecar.grammar.schema import metaschema
from guided_sidecar.grammar.schema.limits import shown

_TYPES: Final = ("array", "boolean", "integer", "null", "number", "object", "string")
_NAMED_TYPES: Final = {
    "array": "an array",
    "boolean": "a boolean",
    "integer": "an integer",
    "null": "null",
    "number": "a number",
    "object": "an object",
    "string": "a string",
}
_MOST_ERRORS: Final = 16  # of which the best is told: a long schema may have thousands
_NAMES: Final = ("dependencies", "dependentRequired", "required", "type")


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
    parts = subschemas.within(schema)
    has_inner_base = any("$id" in part for part in parts[1:])

    def is_fine(part: dict[str, Any]) -> bool:
        return not (_is_lost(schema, part, has_inner_base=has_inner_base) or _has_no_string(part))

    doubtful = (part for part in parts if "$ref" in part or "maxLength" in part)
    if not all(map(is_fine, doubtful)):  # only then does it matter where
        raise next(_fault(place) for place in subschemas.walk(schema) if not is_fine(place.schema))


def check_keywords(part: dict[str, Any], root: dict[str, Any], path: str) -> None:
    """Check what a reference leads to where no schema stands, against the metaschema of its root.

    Raises
    ------
    GuidedError
        grammar_invalid, with the path.
    """
    dialect = {"$schema": root["$schema"]} if "$schema" in root else {}
    part = {**dialect, **part}
    if metaschema.is_plainly_met(part):
        return
    try:
        _check_metaschema(part, _dialect(part))
    except GuidedError as error:
        there = subschemas.below(path, error.path)
        said = error.message.removeprefix(f"{error.path}: ")
        raise GuidedError(error.code, f"{there}: {said}", path=there) from error


def _check_metaschema(schema: Any, validator: Any) -> None:
    for place in subschemas.walk(schema):
        _check_names(place)
    judge = validator(validator.META_SCHEMA)
    for place, keyword in metaschema.doubtful(schema):
        _check_one(judge, {keyword: place.schema[keyword]}, place.path)
    _check_one(judge, schema, "$")


def _check_one(judge: Any, schema: Any, where: str) -> None:
    error = best_match(itertools.islice(judge.iter_errors(schema), _MOST_ERRORS))
    if error is not None:
        path = subschemas.below(where, _path(error.absolute_path))
        raise GuidedError(ErrorCode.GRAMMAR_INVALID, f"{path}: {_reason(error)}", path=path)


def _check_names(place: Place) -> None:
    """Refuse lists of names that hold anything else: jsonschema compares such items with all others."""
    for keyword in _NAMES:
        value = place.schema.get(keyword)
        lists = value.values() if isinstance(value, dict) else [value]
        for names in lists:
            if isinstance(names, list) and not all(isinstance(name, str) for name in names):
                path = place.at(keyword)
                message = f"{path}: {shown(names)} is not a list of strings"
                raise GuidedError(ErrorCode.GRAMMAR_INVALID, message, path=path)


def _dialect(schema: Any) -> Any:
    """Return the validator class of a schema's dialect."""
    if isinstance(schema, dict) and "$schema" in schema:
        path, named = "$.$schema", schema["$schema"]
        if not isinstance(named, str):
            raise GuidedError(ErrorCode.GRAMMAR_INVALID, f"{path}: {shown(named)} is not a string", path=path)
        try:
            validator = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
        except ValueError as error:  # it reads the text as an address
            message = f"{path}: {shown(named)} is not a URI"
            raise GuidedError(ErrorCode.GRAMMAR_INVALID, message, path=path) from error
        if validator is jsonschema.Draft3Validator:
            message = f"{path}: draft 3 is not supported: use draft 4 or later"
            raise GuidedError(ErrorCode.GRAMMAR_UNSUPPORTED, message, path=path)
        return validator
    return jsonschema.Draft202012Validator


def _path(keys: Iterable[str | int]) -> str:
    return functools.reduce(
        lambda path, key: f"{path}[{key}]" if isinstance(key, int) else subschemas.step(path, key), keys, "$"
    )


def _reason(error: Any) -> str:
    """Say in JSON Schema's words what a metaschema has against a value."""
    value, expected = shown(error.instance), error.validator_value
    if error.validator in ("anyOf", "enum") and error.path and error.path[-1] == "type":
        return f"{value} is not a JSON type; those are {', '.join(_TYPES)}"
    words = _WORDS.get(error.validator)
    return f"{value} {words(expected) if words else 'is not allowed here'}"


def _other_type(types: str | list[str]) -> str:
    names = [types] if isinstance(types, str) else types
    return f"is not {' or '.join(_NAMED_TYPES[name] for name in names)}"


# What is wrong with a value that a keyword of the metaschema refuses.
_WORDS: Final[dict[str, Callable[[Any], str]]] = {
    "type": _other_type,
    "enum": lambda values: f"is not one of {', '.join(map(shown, values))}",
    "minimum": lambda least: f"is less than {least}",
    "exclusiveMinimum": lambda bound: f"is not greater than {bound}",
    "minItems": lambda least: f"is too short: it needs at least {least} item",
    "uniqueItems": lambda _: "has an item twice",
    "pattern": lambda pattern: f"does not match {pattern}",
}


def _is_lost(schema: Any, part: dict[str, Any], *, has_inner_base: bool) -> bool:
    """Return whether a part's reference leaves the schema, or names nothing in it."""
    reference = part.get("$ref")
    if not isinstance(reference, str):
        return False
    if not reference.startswith("#"):  # it may name a schema inside this one; the backend finds out
        return not has_inner_base and "$id" not in schema
    # Below an address of its own, a schema's paths begin there: the backend finds out.
    return reference.startswith("#/") and not has_inner_base and not _exists(schema, reference)


def _has_no_string(part: dict[str, Any]) -> bool:
    """Return whether there is no value; among other types, or without one, there still are some."""
    maximum = part.get("maxLength")
    is_none = maximum is not None and part.get("minLength", 0) > maximum
    return is_none and Place(ROOT, part).types() == {"string"}


def _fault(place: Place) -> GuidedError:
    """Say what is wrong with a schema that no string meets, or whose reference is lost."""
    if _has_no_string(place.schema):
        path, minimum, maximum = place.at("minLength"), place.schema["minLength"], place.schema["maxLength"]
        message = f"{path}: no string has at least {minimum} and at most {maximum} characters"
        return GuidedError(ErrorCode.GRAMMAR_INVALID, message, path=path)
    path, reference = place.at("$ref"), place.schema["$ref"]
    if reference.startswith("#"):
        message = f"{path}: {shown(reference)} does not exist in the schema"
        return GuidedError(ErrorCode.GRAMMAR_INVALID, message, path=path)
    message = f"{path}: {shown(reference)} points outside of the schema: references are not fetched"
    return GuidedError(ErrorCode.GRAMMAR_UNSUPPORTED, message, path=path)


def _exists(schema: Any, pointer: str) -> bool:
    try:
        subschemas.referred(schema, pointer)
    except LookupError:
        return False
    return True
