"""What a schema object asserts, read by its draft and written in the words of draft 2020-12.

Annotations are gone then, and so is what a draft does not know: each library reads some of both in its own
way. An object with an unknown keyword and no `properties` was `{}` alone with one of them and anything with
the other, and a format that one of them does not know was a refusal.
"""

import re
from typing import Any, Final

import jsonschema

from guided_grammar.json_schema.keywords import KEYWORDS, OF_TYPE
from guided_grammar.json_schema.subschemas import JsonPath
from guided_sidecar.grammar.schema import formats
from guided_sidecar.grammar.schema.disjoint import text
from guided_sidecar.grammar.schema.faults import unsupported
from guided_sidecar.grammar.schema.origins import Said

Schema = dict[str, Any]

_NEWEST: Final = 2020
_DRAFTS: Final = {  # as jsonschema knows them; what else is named is read as the newest
    "http://json-schema.org/draft-04/schema": 4,
    "http://json-schema.org/draft-06/schema": 6,
    "http://json-schema.org/draft-07/schema": 7,
    "https://json-schema.org/draft/2019-09/schema": 2019,
}
_FORMER: Final = ("$recursiveRef", _NEWEST)  # which knows it no more
# What a library's own keywords do, a client must not: they switch its checks off.
PRIVATE: Final = "x-guidance"
_COUNT: Final = re.compile("(?:min|max)[A-Z]")  # begins the keywords that bound one


def of(schema: Any) -> int:
    """Return the draft of a schema by its $schema: 4, 6, 7, 2019 or 2020."""
    named = schema.get("$schema", "") if isinstance(schema, dict) else ""
    return _DRAFTS.get(str(named).removesuffix("#"), _NEWEST)


def read(part: Schema, draft: int, path: JsonPath) -> Said:
    """Return what one object of a checked schema asserts; its subschemas are those of `part`.

    Raises
    ------
    GuidedError
        grammar_unsupported: it has a keyword that only one library knows.
    """
    if PRIVATE in part:
        raise unsupported(JsonPath(path, PRIVATE), f"{PRIVATE} is not supported in a schema")
    if "$schema" in part and of(part) != draft:
        reason = "a subschema whose $schema names another draft is not supported"
        raise unsupported(JsonPath(path, "$schema"), reason)
    if draft < 2019 and "$ref" in part:
        return Said({"$ref": part["$ref"]})  # what stands beside it says nothing there
    said = Said(
        {
            keyword: value
            for keyword, value in part.items()
            if (known := KEYWORDS.get(keyword)) and known.since <= draft and (keyword, draft) != _FORMER
        }
    )
    if said.get("not") in ({}, True):
        return Said({"enum": []}, {"enum": "not"})
    _drop_what_says_nothing(said)
    _write_values(said)
    _write_format(said)
    for keyword in filter(_COUNT.match, said):
        said[keyword] = int(said[keyword])  # 2.0 is one, and no library reads it
    if draft == 4:
        _write_exclusive(said)
    _write_items(said, draft)
    _write_dependencies(said, draft)
    for keyword in ("unevaluatedProperties", "unevaluatedItems"):
        if said.get(keyword) is True:
            del said[keyword]
    if "then" not in said and "else" not in said:
        said.pop("if", None)
    return said


def _drop_what_says_nothing(said: Schema) -> None:
    """Leave out what allows any value, and what is about values alone that the type excludes."""
    if said.get("not") is False:
        del said["not"]
    named = said.get("type")
    if named is None:
        return
    types = {
        "number" if name == "integer" else name for name in ([named] if isinstance(named, str) else named)
    }
    for keyword in [one for one in said if OF_TYPE.get(one) not in types and one in OF_TYPE]:
        del said[keyword]


def _write_values(said: Said) -> None:
    """Write const and enum as the values of both that have a type of the schema."""
    lists = [*([[said["const"]]] if "const" in said else []), *([said["enum"]] if "enum" in said else [])]
    if not lists:
        return
    if "const" in said:
        said.names["enum"] = "const"
        del said["const"]
    known = set.intersection(*(set(map(text, values)) for values in lists))
    asked = said.get("type")
    names = [asked] if isinstance(asked, str) else asked
    said["enum"] = [
        value
        for value in lists[0]
        if text(value) in known and (names is None or any(_is_of(name, value) for name in names))
    ]


def _is_of(name: str, value: Any) -> bool:
    return bool(jsonschema.Draft202012Validator.TYPE_CHECKER.is_type(value, name))


def _write_format(said: Said) -> None:
    name = formats.IN_ASCII.get(said.get("format", ""), said.get("format", ""))
    if said.pop("format", None) in formats.NARROWED:
        said.narrowed.append("format")
    if name in formats.LIBRARYS:
        said["format"] = name
    if (pattern := formats.PATTERNS.get(name)) is None:
        return
    if "pattern" in said:
        said["allOf"] = [*said.get("allOf", ()), {"pattern": pattern}]
    else:
        said["pattern"] = pattern
        said.names["pattern"] = "format"


def _write_exclusive(said: Schema) -> None:
    """Write draft 4's flags as the bounds of later drafts."""
    for flag, bound in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        if said.pop(flag, False) is True and bound in said:
            said[flag] = said.pop(bound)


def _write_items(said: Said, draft: int) -> None:
    further = said.pop("additionalItems", None)
    if draft < _NEWEST and isinstance(said.get("items"), list):
        said["prefixItems"] = said.pop("items")
        said.names |= {"prefixItems": "items", "items": "additionalItems"}
        if further is not None:
            said["items"] = further
    if not said.get("prefixItems", True):
        del said["prefixItems"]


def _write_dependencies(said: Said, draft: int) -> None:
    """Write `dependencies` as later drafts do; where it is no keyword, it is obeyed and never negated."""
    for name, wanted in said.pop("dependencies", {}).items():
        asked = {"required": wanted} if isinstance(wanted, list) else wanted
        keyword = "dependentSchemas" if draft < 2019 else "dependencies"
        said.names[keyword] = "dependencies"
        schemas = said[keyword] = {**said.get(keyword, {})}
        schemas[name] = {"allOf": [schemas[name], asked]} if name in schemas else asked
