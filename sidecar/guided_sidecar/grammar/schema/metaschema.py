"""Whether a schema plainly meets its metaschema, told by msgspec in a hundredth of jsonschema's time.

jsonschema follows the metaschema's dynamic references for every keyword: 200 ms for a schema of 20 KB. So it
is asked only where this says no.
"""

from typing import Annotated, Any, Final, Literal  # noqa: F401 - the texts of types say them

import msgspec
from msgspec import Meta  # noqa: F401 - the same

from guided_grammar.json_schema import subschemas

DRAFT_2020: Final = "https://json-schema.org/draft/2020-12/schema"
_DRAFT_7: Final = "http://json-schema.org/draft-07/schema"
_OTHERS: Final = frozenset(["$recursiveAnchor", "$recursiveRef", "$vocabulary"])
_NAME: Final = "Literal['array', 'boolean', 'integer', 'null', 'number', 'object', 'string']"
_SCHEMA: Final = "bool | _Node"
_TYPES: Final = {
    _SCHEMA: [one for one in subschemas.SINGLE if one != "items"],
    f"Annotated[list[{_SCHEMA}], Meta(min_length=1)]": ["allOf", "anyOf", "oneOf", "prefixItems"],
    f"{_SCHEMA} | Annotated[list[{_SCHEMA}], Meta(min_length=1)]": ["items"],
    f"dict[str, {_SCHEMA}]": subschemas.MAPS,
    f"dict[str, {_SCHEMA} | list[str]]": ["dependencies"],
    "dict[str, list[str]]": ["dependentRequired"],
    "list[str]": ["required"],
    f"{_NAME} | Annotated[list[{_NAME}], Meta(min_length=1)]": ["type"],
    "str": [
        *("$comment", "$dynamicRef", "$ref", "$schema", "contentEncoding", "contentMediaType"),
        *("description", "format", "pattern", "title"),
    ],
    "Annotated[str, Meta(pattern='^[^#]*#?$')]": ["$id"],
    "Annotated[str, Meta(pattern='^[A-Za-z_][-A-Za-z0-9._]*$')]": ["$anchor", "$dynamicAnchor"],
    "bool": ["deprecated", "readOnly", "uniqueItems", "writeOnly"],
    "list[Any]": ["enum", "examples"],
    "int | float": ["exclusiveMaximum", "exclusiveMinimum", "maximum", "minimum"],
    "Annotated[int, Meta(gt=0)] | Annotated[float, Meta(gt=0)]": ["multipleOf"],
    "Annotated[int, Meta(ge=0)]": [
        *("maxContains", "maxItems", "maxLength", "maxProperties"),
        *("minContains", "minItems", "minLength", "minProperties"),
    ],
}
_FIELDS: Final = [(keyword, meant) for meant, keywords in _TYPES.items() for keyword in keywords]
_Node: Any = msgspec.defstruct(
    "_Node",
    [(f"field{number}", meant, None) for number, (_, meant) in enumerate(_FIELDS)],
    namespace={"__module__": __name__},
    rename={f"field{number}": keyword for number, (keyword, _) in enumerate(_FIELDS)},
)


def is_plainly_met(schema: Any) -> bool:
    """Return whether a schema meets its metaschema for certain; False also of dialects that are not known."""
    dialect = schema.get("$schema", DRAFT_2020) if isinstance(schema, dict) else DRAFT_2020
    if not isinstance(dialect, str) or dialect.removesuffix("#") not in (DRAFT_2020, _DRAFT_7):
        return False
    try:
        msgspec.convert(schema, bool | _Node)
    except (msgspec.ValidationError, RecursionError):
        return False
    return not any(_is_doubtful(part, dialect == DRAFT_2020) for part in subschemas.within(schema))


def _is_doubtful(part: dict[str, Any], is_newest: bool) -> bool:  # noqa: FBT001 - of one caller
    lists = [part.get("required", []), part.get("type"), *part.get("dependentRequired", {}).values()]
    lists += part.get("dependencies", {}).values()
    if any(isinstance(names, list) and len(set(names)) < len(names) for names in lists):
        return True
    return not _OTHERS.isdisjoint(part) or (is_newest and isinstance(part.get("items"), list))
