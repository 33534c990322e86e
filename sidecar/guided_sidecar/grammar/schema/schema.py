"""Whether a text is a JSON Schema at all, told in words for the developer who wrote it."""

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import jsonschema
from jsonschema.exceptions import best_match

from guided_contract.errors import ErrorCode, GuidedError
from guided_grammar.json_schema import subschemas
from guided_grammar.json_schema.subschemas import Place
from guided_sidecar.grammar.schema import faults, metaschema, patterns
from guided_sidecar.grammar.schema.faults import fault
from guided_sidecar.grammar.schema.limits import shown

_NAMED_TYPES: Final = {
    "array": "an array",
    "boolean": "a boolean",
    "integer": "an integer",
    "null": "null",
    "number": "a number",
    "object": "an object",
    "string": "a string",
}
_MOST_ERRORS: Final = 2000  # that are looked for: a long schema has more, and each takes 0.2 ms
_EXCLUSIVE: Final = ("exclusiveMaximum", "exclusiveMinimum")
_NAMES: Final = ("dependencies", "dependentRequired", "required", "type")
_DOUBTFUL: Final = frozenset({"$ref", "pattern", "patternProperties"})


def check(schema: Any) -> None:
    """Check a schema against its metaschema (that of $schema, or draft 2020-12), references and patterns.

    Raises
    ------
    GuidedError
        grammar_invalid, or grammar_unsupported for draft 3 and for a reference that leaves the schema. Its
        message has up to ten lines, each `path: what is wrong there`; its path and code are the first one's.
    """
    validator = _dialect(schema)
    faults.refuse(_faults(schema, validator))


def check_keywords(part: dict[str, Any], root: dict[str, Any], path: str) -> None:
    """Check what a reference leads to where no schema stands, against its root's metaschema, not its own.

    Raises
    ------
    GuidedError
        grammar_invalid, as `check` says it, with paths below `path`.
    """
    part = {**part, "$schema": root.get("$schema", metaschema.DRAFT_2020)}
    broken = (_fault(place) for place in subschemas.walk(part) if _broken(place.schema))
    found = itertools.chain(_of_metaschema(part, _dialect(part)), broken)
    faults.refuse(faults.moved(one, path) for one in found)


def _faults(schema: Any, validator: Any) -> Iterator[GuidedError]:
    yield from _of_metaschema(schema, validator)
    parts = subschemas.within(schema)
    has_inner_base = any("$id" in part for part in parts[1:])

    def is_fine(part: dict[str, Any]) -> bool:
        is_lost = _is_lost(schema, part, has_inner_base=has_inner_base)
        return not (is_lost or _broken(part))

    doubtful = (part for part in parts if not _DOUBTFUL.isdisjoint(part))
    if not all(map(is_fine, doubtful)):  # only then does it matter where
        yield from (_fault(place) for place in subschemas.walk(schema) if not is_fine(place.schema))


def _of_metaschema(schema: Any, validator: Any) -> Iterator[GuidedError]:
    doubtful = metaschema.doubtful(schema)
    if doubtful == []:
        return
    judge = validator(validator.META_SCHEMA)
    misnamed = {place.at(keyword): place.schema[keyword] for place, keyword in _misnamed(schema)}
    for path, value in misnamed.items():
        yield fault(path, f"{shown(value)} is not a list of strings")
    if doubtful is None and not misnamed:
        yield from _told(judge, schema, "$")
    for place, keyword in doubtful or ():
        if place.at(keyword) not in misnamed:
            yield from _told(judge, {keyword: place.schema[keyword]}, place.path)


def _told(judge: Any, schema: Any, where: str) -> Iterator[GuidedError]:
    """Yield what a metaschema has against a schema that stands at a path."""
    errors = itertools.islice(judge.iter_errors(schema), _MOST_ERRORS)
    # In some dialects jsonschema looks at properties in an order of its own, which differs between processes.
    for error in sorted(errors, key=lambda error: [str(key) for key in error.absolute_path]):
        best = best_match([error])
        yield fault(subschemas.below(where, _path(best.absolute_path)), _reason(best))


def _misnamed(schema: Any) -> Iterator[tuple[Place, str]]:
    """Yield lists of names that hold anything else: jsonschema compares such items with all others."""
    for place in subschemas.walk(schema):
        for keyword in _NAMES:
            value = place.schema.get(keyword)
            lists = value.values() if isinstance(value, dict) else [value]
            if not all(isinstance(name, str) for names in lists if isinstance(names, list) for name in names):
                yield place, keyword


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


def _path(keys: Iterable[str | int]) -> str:
    return functools.reduce(
        lambda path, key: f"{path}[{key}]" if isinstance(key, int) else subschemas.step(path, key), keys, "$"
    )


def _reason(error: Any) -> str:
    """Say in JSON Schema's words what a metaschema has against a value."""
    value, expected = shown(error.instance), error.validator_value
    if error.validator in ("anyOf", "enum") and error.path and error.path[-1] == "type":
        return f"{value} is not a JSON type; those are {', '.join(_NAMED_TYPES)}"
    if error.path and error.path[-1] == "items" and isinstance(error.instance, list):
        return f"{value} is an array: write prefixItems, or name an older draft in $schema"
    if error.path and error.path[-1] in _EXCLUSIVE and isinstance(error.instance, bool):
        meant = "write the bound itself, alone" if error.instance else "leave it out"
        return f"{value} is of draft 4, which $schema does not name: {meant}"
    if error.validator == "dependencies":
        lone = next(one for one in expected if one in error.instance)
        return f"{lone} needs {' and '.join(expected[lone])} beside it"
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


def _fault(place: Place) -> GuidedError:
    """Say what is wrong with a schema whose pattern is broken or reference lost."""
    broken = _broken(place.schema)
    if broken is not None:
        reason = f"{shown(broken[1])} is not a regular expression: {patterns.broken(broken[1])}"
        return fault(place.at(broken[0]), reason)
    path, reference = place.at("$ref"), place.schema["$ref"]
    if reference.startswith("#"):
        return fault(path, f"{shown(reference)} does not exist in the schema")
    reason = f"{shown(reference)} points outside of the schema: references are not fetched"
    return fault(path, reason, ErrorCode.GRAMMAR_UNSUPPORTED)


def _broken(part: dict[str, Any]) -> tuple[str, str] | None:
    """Return the first text that is no regular expression where one should be, with its keyword."""
    names = part.get("patternProperties")
    found = [("patternProperties", name) for name in names] if isinstance(names, dict) else []
    if isinstance(part.get("pattern"), str):
        found.insert(0, ("pattern", part["pattern"]))
    return next((one for one in found if patterns.broken(one[1])), None)


def _exists(schema: Any, pointer: str) -> bool:
    try:
        subschemas.referred(schema, pointer)
    except LookupError:
        return False
    return True
