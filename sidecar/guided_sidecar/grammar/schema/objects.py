"""propertyNames, dependencies and counts of properties, in keywords that a library enforces."""

from typing import Final

from guided_grammar.json_schema.subschemas import JsonPath
from guided_sidecar.grammar.schema import disjoint, listed
from guided_sidecar.grammar.schema.origins import Said
from guided_sidecar.grammar.schema.writing import (
    Schema,
    Writer,
    both,
    conditions,
    either,
    of_other_types,
    unsupported,
)

_LONGEST: Final = (1 << 31) - 1  # characters, more than any text has


def name(writer: Writer, said: Schema, written: Schema, path: JsonPath) -> None:
    """Write propertyNames."""
    at = JsonPath(path, "propertyNames")
    names = writer.resolved(said.get("propertyNames", True), at)
    if names is True:
        return
    asked = {"enum": []} if names is False else writer.said(names, at)
    further = written.get("additionalProperties", True)
    if listed.values(asked) is not None:
        kept_names = listed.kept(asked, writer.draft)
        if kept_names is None:
            raise unsupported(at, "which of the listed names meet its other keywords cannot be told")
        wanted = [one for one in kept_names if isinstance(one, str)]
        named = {one: further for one in wanted if one not in written.get("properties", {})}
        _apply(written, named, writer.draft, JsonPath(path, "patternProperties"))
    else:
        named = {}
        pattern = _pattern(asked, at)
        if pattern is None:
            return
        if "patternProperties" in written or ("properties" in written and further not in (True, False)):
            raise unsupported(at, "it is not enforced beside what the object says of other names")
        if further is not False:
            written["patternProperties"] = {pattern: further}
    own = written.get("properties", {})
    kept_own = listed.meeting(list(own), asked, writer.draft)
    if kept_own is None:
        raise unsupported(at, "which of the properties it allows cannot be told")
    kept = {key: one if key in kept_own else False for key, one in own.items()}
    if kept or named:
        written["properties"] = kept | named
    written["additionalProperties"] = False


def _apply(written: Schema, named: Schema, draft: int, path: JsonPath) -> None:
    """Write what patternProperties asks of properties that are named, which are all there are, with them."""
    own = written.get("properties", {})
    matched: set[str] = set()
    for pattern, part in written.pop("patternProperties", {}).items():
        names = listed.meeting([*own, *named], {"pattern": pattern}, draft)
        if names is None:
            raise unsupported(JsonPath(path, pattern), "which of the listed names it matches cannot be told")
        for one in names:
            properties = own if one in own else named
            # additionalProperties, which named properties have until now, is about no name with a pattern.
            is_first = properties is named and one not in matched
            properties[one] = part if is_first else both([properties[one], part])
            matched.add(one)


def _pattern(asked: Schema, path: JsonPath) -> str | None:
    """Return the one pattern of names that are asked for; None: any name will do."""
    if "string" not in disjoint.types(asked):
        return "^[^\\s\\S]$"
    about = asked.keys() - {"type", "minLength", "maxLength", "pattern"}
    bounded = not asked.keys().isdisjoint(("minLength", "maxLength"))
    if about or ("pattern" in asked and bounded):
        raise unsupported(path, "propertyNames supports only pattern, minLength/maxLength or enum")
    if bounded:
        least, most = asked.get("minLength", 0), asked.get("maxLength", _LONGEST)
        if least > _LONGEST:
            raise unsupported(path, f"names of more than {_LONGEST} characters are not enforced")
        return f"^[\\s\\S]{{{least},{min(most, _LONGEST) if 'maxLength' in asked else ''}}}$"
    if "pattern" not in asked:
        return None
    found = conditions(asked["pattern"], path)
    if len(found) > 1:
        raise unsupported(path, "names are enforced by a pattern without lookaround")
    return found[0]


def by_pattern(parts: Schema, path: JsonPath) -> Schema:
    """Write the patterns of names without lookaround."""
    found: Schema = {}
    for name, part in parts.items():
        pattern, *others = conditions(name, JsonPath(path, name))
        if others:
            raise unsupported(JsonPath(path, name), "names are enforced by a pattern without lookaround")
        found[pattern] = {"allOf": [found[pattern], part]} if pattern in found else part
    return found


def depend(writer: Writer, said: Said, written: Schema, path: JsonPath) -> None:
    """Write dependentRequired, dependentSchemas and dependencies."""
    rest = of_other_types(disjoint.types(said), "object")
    for keyword in ("dependencies", "dependentRequired", "dependentSchemas"):
        at = said.at(path, keyword)
        for name, asked in said.get(keyword, {}).items():
            if keyword == "dependencies":  # which the draft does not know, and whose author means it
                writer.narrow(at)
            then = {"required": asked} if isinstance(asked, list) else writer.write(asked, JsonPath(at, name))
            absent = [] if name in said.get("required", ()) else [_without_property(name)]
            writer.also(written, either([*rest, *absent, {"type": "object", "allOf": [then]}]), at)


def count(writer: Writer, said: Schema, written: Schema, path: JsonPath) -> None:
    """Leave bounds of the number of properties to the library, which refuses what it does not enforce."""
    names = set(said.get("required", ()))
    required, least = len(names), said.get("minProperties", 0)
    counts = [keyword for keyword in ("minProperties", "maxProperties") if keyword in said]
    if counts and "patternProperties" in written and written.get("properties", {}).keys() - names:
        reason = "it is not enforced beside patternProperties and optional properties"
        raise unsupported(JsonPath(path, counts[0]), reason)
    if least > required:
        at = JsonPath(path, "minProperties")
        possible = [name for name, part in written.get("properties", {}).items() if part is not False]
        if least > required + 1 and "additionalProperties" not in written and len(possible) >= least:
            written["additionalProperties"] = False
            writer.narrow(at)
        is_open = written.get("additionalProperties", True) is not False or "patternProperties" in written
        if least > required + 1 and is_open:
            raise unsupported(at, "it is not enforced where names are open: one may come twice")
        written["minProperties"] = least
    if "maxProperties" in said:
        written["maxProperties"] = said["maxProperties"]


def _without_property(name: str) -> Schema:
    return {"type": "object", "properties": {name: False}}
