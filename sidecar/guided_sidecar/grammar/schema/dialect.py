"""What a schema object asserts, read by its draft and written in the words of draft 2020-12.

Annotations are gone then, and so is what a draft does not know: each library reads some of both in its own
way. An object with an unknown keyword and no `properties` was `{}` alone with one of them and anything with
the other, and a format that one of them does not know was a refusal.
"""

from typing import Any, Final

from guided_contract.errors import ErrorCode, GuidedError
from guided_grammar.json_schema.subschemas import JsonPath

Schema = dict[str, Any]

_NEWEST: Final = 2020
_DRAFTS: Final = {
    "draft-04/": 4,
    "draft-06/": 6,
    "draft-07/": 7,
    "draft/2019-09/": 2019,
}
# Formats of the specification that a library enforces, and those that none does. The specification calls
# others annotations, as OpenAPI's `int32` and pydantic's `password`.
_FORMATS: Final = frozenset(
    [
        *("date", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "json-pointer"),
        *("relative-json-pointer", "time", "uri", "uri-reference", "uri-template", "uuid"),
    ]
)
_UNENFORCED: Final = frozenset(["idn-email", "idn-hostname", "iri", "iri-reference", "regex"])
# A library does not know some formats, or reads others than the next one does: days that a month does not
# have, letters of either case, raw control characters.
_LEAP_YEAR: Final = "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)"
_DAY: Final = (
    "(?:[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)"
    f"|02-(?:0[1-9]|1[0-9]|2[0-8]))|{_LEAP_YEAR}-02-29)"
)
_HOUR: Final = "(?:[01][0-9]|2[0-3])"
_TIME: Final = f"{_HOUR}:[0-5][0-9]:[0-5][0-9](?:\\.[0-9]+)?(?:Z|[+-]{_HOUR}:[0-5][0-9])"
_AS_PATTERN: Final = {
    "date": f"^{_DAY}$",
    "time": f"^{_TIME}$",
    "date-time": f"^{_DAY}T{_TIME}$",
    "json-pointer": "^(?:/(?:[^~/]|~[01])*)*$",
    "relative-json-pointer": "^(?:0|[1-9][0-9]*)(?:#|(?:/(?:[^~/]|~[01])*)*)$",
}
# What a library's own keywords do, a client must not: they switch its checks off.
PRIVATE: Final = "x-guidance"
# By the first draft that knows each keyword. `dependencies` is one for whoever writes it.
_SINCE: Final = {
    **dict.fromkeys(
        [
            "$ref",
            "additionalItems",
            "additionalProperties",
            "allOf",
            "anyOf",
            "dependencies",
            "enum",
            "exclusiveMaximum",
            "exclusiveMinimum",
            "format",
            "items",
            "maxItems",
            "maxLength",
            "maxProperties",
            "maximum",
            "minItems",
            "minLength",
            "minProperties",
            "minimum",
            "multipleOf",
            "not",
            "oneOf",
            "pattern",
            "patternProperties",
            "properties",
            "required",
            "type",
            "uniqueItems",
        ],
        4,
    ),
    **dict.fromkeys(["const", "contains", "propertyNames"], 6),
    **dict.fromkeys(["else", "if", "then"], 7),
    **dict.fromkeys(
        [
            "$recursiveRef",
            "dependentRequired",
            "dependentSchemas",
            "maxContains",
            "minContains",
            "unevaluatedItems",
            "unevaluatedProperties",
        ],
        2019,
    ),
    **dict.fromkeys(["$dynamicRef", "prefixItems"], 2020),
}
# What says something of values of one type alone.
OF_TYPE: Final = {
    **dict.fromkeys(
        [
            "additionalItems",
            "contains",
            "items",
            "maxContains",
            "maxItems",
            "minContains",
            "minItems",
            "prefixItems",
            "unevaluatedItems",
            "uniqueItems",
        ],
        "array",
    ),
    **dict.fromkeys(
        ["exclusiveMaximum", "exclusiveMinimum", "maximum", "minimum", "multipleOf"],
        "number",
    ),
    **dict.fromkeys(
        [
            "additionalProperties",
            "dependencies",
            "dependentRequired",
            "dependentSchemas",
            "maxProperties",
            "minProperties",
            "patternProperties",
            "properties",
            "propertyNames",
            "required",
            "unevaluatedProperties",
        ],
        "object",
    ),
    **dict.fromkeys(["format", "maxLength", "minLength", "pattern"], "string"),
}
_COUNTS: Final = frozenset(
    [
        "maxContains",
        "maxItems",
        "maxLength",
        "maxProperties",
        "minContains",
        "minItems",
        "minLength",
        "minProperties",
    ]
)
_REWRITTEN: Final = _COUNTS | {
    "additionalItems",
    "dependencies",
    "exclusiveMaximum",
    "exclusiveMinimum",
    "format",
    "items",
    "prefixItems",
    "unevaluatedItems",
    "unevaluatedProperties",
}
# What these evaluate in the same object or array is no concern of `additionalProperties` and `items`.
_IN_PLACE: Final = frozenset(
    [
        "$dynamicRef",
        "$recursiveRef",
        "$ref",
        "allOf",
        "anyOf",
        "dependencies",
        "dependentSchemas",
        "else",
        "if",
        "not",
        "oneOf",
        "then",
    ]
)


def of(schema: Any) -> int:
    """Return the draft of a schema by its $schema: 4, 6, 7, 2019 or 2020."""
    named = schema.get("$schema", "") if isinstance(schema, dict) else ""
    return next((draft for part, draft in _DRAFTS.items() if part in named), _NEWEST)


def read(part: Schema, draft: int, path: JsonPath) -> Schema:
    """Return what one object of a checked schema asserts; its subschemas are those of `part`.

    Raises
    ------
    GuidedError
        grammar_unsupported: it has a keyword that only one library knows, or a format that none does.
    """
    if PRIVATE in part:
        where = str(JsonPath(path, PRIVATE))
        message = f"{where}: options of one grammar library are not taken from a schema"
        raise GuidedError(ErrorCode.GRAMMAR_UNSUPPORTED, message, path=where)
    if draft < 2019 and "$ref" in part:
        return {"$ref": part["$ref"]}  # what stands beside it says nothing there
    said = {keyword: value for keyword, value in part.items() if _SINCE.get(keyword, 9999) <= draft}
    _drop_of_other_types(said)
    if said.keys().isdisjoint(_REWRITTEN):
        return said
    if said.get("format", "date") not in _FORMATS:
        _refuse_unenforced(said.pop("format"), path)
    _write_format(said)
    for keyword in _COUNTS & said.keys():
        said[keyword] = int(said[keyword])  # 2.0 is one, and no library reads it
    if draft == 4:
        _write_exclusive(said)
    _write_items(said, draft)
    _write_dependencies(said, draft)
    _write_unevaluated(said, "unevaluatedProperties", "additionalProperties", hidden="patternProperties")
    if draft == _NEWEST:
        _write_unevaluated(said, "unevaluatedItems", "items", hidden="contains")
    for keyword in ("unevaluatedProperties", "unevaluatedItems"):
        if said.get(keyword) is True:
            del said[keyword]
    return said


def _refuse_unenforced(format_name: str, path: JsonPath) -> None:
    if format_name in _UNENFORCED:
        where = str(JsonPath(path, "format"))
        message = f"{where}: no grammar library enforces {format_name!r}; without it, any text is taken"
        raise GuidedError(ErrorCode.GRAMMAR_UNSUPPORTED, message, path=where)


def _drop_of_other_types(said: Schema) -> None:
    """Leave out what says something of values alone that the type excludes."""
    named = said.get("type")
    if named is None:
        return
    types = {
        "number" if name == "integer" else name for name in ([named] if isinstance(named, str) else named)
    }
    for keyword in [one for one in said if OF_TYPE.get(one) not in types and one in OF_TYPE]:
        del said[keyword]


def _write_format(said: Schema) -> None:
    if (pattern := _AS_PATTERN.get(said.get("format", ""))) is None:
        return
    del said["format"]
    if "pattern" in said:
        said["allOf"] = [*said.get("allOf", ()), {"pattern": pattern}]
    else:
        said["pattern"] = pattern


def _write_exclusive(said: Schema) -> None:
    """Write draft 4's flags as the bounds of later drafts."""
    for flag, bound in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        if said.pop(flag, False) is True and bound in said:
            said[flag] = said.pop(bound)


def _write_items(said: Schema, draft: int) -> None:
    further = said.pop("additionalItems", None)
    if draft < _NEWEST and isinstance(said.get("items"), list):
        said["prefixItems"] = said.pop("items")
        if further is not None:
            said["items"] = further
    if not said.get("prefixItems", True):
        del said["prefixItems"]


def _write_dependencies(said: Schema, draft: int) -> None:
    """Write `dependencies` as later drafts do; where it is no keyword, it is obeyed and never negated."""
    for name, wanted in said.pop("dependencies", {}).items():
        asked = {"required": wanted} if isinstance(wanted, list) else wanted
        keyword = "dependentSchemas" if draft < 2019 else "dependencies"
        schemas = said[keyword] = {**said.get(keyword, {})}
        schemas[name] = {"allOf": [schemas[name], asked]} if name in schemas else asked


def _write_unevaluated(said: Schema, keyword: str, meant: str, *, hidden: str) -> None:
    """Write a keyword as the other where both mean the same; the first alone takes note of `hidden`."""
    if keyword not in said:
        return
    if meant in said:
        del said[keyword]  # everything is evaluated
    elif hidden not in said and _IN_PLACE.isdisjoint(said):
        said[meant] = said.pop(keyword)
