"""Names of properties, their dependencies and counts, in keywords that a library enforces."""

from typing import Any, Final

from guided_grammar.json_schema.subschemas import JsonPath
from guided_sidecar.grammar.schema import disjoint, patterns
from guided_sidecar.grammar.schema.faults import unsupported
from guided_sidecar.grammar.schema.origins import Said

Schema = dict[str, Any]

_LONGEST: Final = (1 << 31) - 1  # characters, more than any text has


def write(writer: Any, said: Said, written: Schema, path: JsonPath) -> None:
    """Write patternProperties, propertyNames, dependencies and counts of a schema of objects."""
    if "patternProperties" in written:
        _by_pattern(written, JsonPath(path, "patternProperties"))
    _name(writer, said, written, JsonPath(path, "propertyNames"))
    _depend(writer, said, written, path)
    _count(said, written, path)


def _by_pattern(written: Schema, path: JsonPath) -> None:
    found: Schema = {}
    for name, part in written["patternProperties"].items():
        pattern, *others = patterns.conditions(name, JsonPath(path, name))
        if others:
            raise unsupported(
                JsonPath(path, name), "lookaround is not supported in a pattern of property names"
            )
        found[pattern] = {"allOf": [found[pattern], part]} if pattern in found else part
    written["patternProperties"] = found


def _name(writer: Any, said: Schema, written: Schema, path: JsonPath) -> None:
    """Write propertyNames as another schema of the same object, which has such names and no others."""
    names = writer.resolved(said.get("propertyNames", True), path)
    if names is True:
        return
    asked = writer.said(names, path) if isinstance(names, dict) else {"enum": []}
    if "enum" in asked:
        if not asked.keys() <= {"enum", "type"}:
            raise unsupported(path, "enum together with these keywords is not supported for property names")
        only: Schema = {"properties": {name: True for name in asked["enum"] if isinstance(name, str)}}
    elif (pattern := _pattern(asked, path)) is not None:
        only = {"patternProperties": {pattern: True}}
    else:
        return
    writer.also(written, only | {"additionalProperties": False}, path)


def _pattern(asked: Schema, path: JsonPath) -> str | None:
    """Return the one pattern of names that are asked for; None: any name will do."""
    if "string" not in disjoint.types(asked):
        return "^[^\\s\\S]$"
    about = asked.keys() - {"type"}
    if not (about <= {"minLength", "maxLength"} or about == {"pattern"}):
        raise unsupported(path, "propertyNames supports only pattern, minLength/maxLength or enum")
    if about == {"pattern"}:
        found, *others = patterns.conditions(asked["pattern"], path)
        if others:
            raise unsupported(path, "lookaround is not supported in a pattern of property names")
        return found
    least, most = asked.get("minLength", 0), asked.get("maxLength", _LONGEST)
    if least > _LONGEST:
        raise unsupported(path, f"names of more than {_LONGEST} characters are not supported")
    counted = f"{least},{min(most, _LONGEST) if 'maxLength' in asked else ''}"
    return f"^[^\\u0000-\\u001f\\u007f]{{{counted}}}$" if about else None


def _depend(writer: Any, said: Said, written: Schema, path: JsonPath) -> None:
    rest = disjoint.other_types(said, "object")
    for keyword in ("dependencies", "dependentRequired", "dependentSchemas"):
        at = said.at(path, keyword)
        for name, asked in said.get(keyword, {}).items():
            if keyword == "dependencies":  # which the draft does not know, and whose author means it
                writer.narrow(at)
            then = {"required": asked} if isinstance(asked, list) else writer.write(asked, JsonPath(at, name))
            absent = {"type": "object", "properties": {name: False}}
            ways = [*rest, *([] if name in said.get("required", ()) else [absent])]
            writer.also(written, disjoint.either([*ways, {"type": "object", "allOf": [then]}]), at)


def _count(said: Schema, written: Schema, path: JsonPath) -> None:
    """Leave bounds of the number of properties to the library, which refuses what it does not enforce."""
    names = set(said.get("required", ()))
    counts = [keyword for keyword in ("minProperties", "maxProperties") if keyword in said]
    if counts and "patternProperties" in written and written.get("properties", {}).keys() - names:
        reason = "it is not supported together with patternProperties and optional properties"
        raise unsupported(JsonPath(path, counts[0]), reason)
    least, at = said.get("minProperties", 0), JsonPath(path, "minProperties")
    if least > len(names):
        is_open = written.get("additionalProperties", True) is not False or "patternProperties" in written
        if least > len(names) + 1 and is_open:
            raise unsupported(
                at, "not supported with additional properties: set additionalProperties to false"
            )
        written["minProperties"] = least
    if "maxProperties" in said:
        written["maxProperties"] = said["maxProperties"]
