"""propertyNames, dependencies and counts of properties, in keywords that a library enforces."""

import itertools
import math
from collections.abc import Sequence
from typing import Final

from guided_grammar.json_schema.subschemas import JsonPath
from guided_sidecar.grammar.schema import disjoint, listed
from guided_sidecar.grammar.schema.origins import Said
from guided_sidecar.grammar.schema.writing import (
    Alternatives,
    Schema,
    Writer,
    both,
    conditions,
    either,
    of_other_types,
    unsupported,
)

_MOST_ALTERNATIVES: Final = 128
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
        raise unsupported(path, "names are enforced by a pattern, by a length or by a list of them alone")
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
    at = JsonPath(path, "dependentRequired")
    for name, wanted in said.get("dependentRequired", {}).items():
        if name in said.get("required", ()):
            writer.also(written, {"required": wanted}, at)
        elif wanted:
            found = [*rest, _without_property(name), {"type": "object", "required": wanted}]
            writer.also(written, either(found), at)
    dependencies = [
        (keyword, name, asked)
        for keyword in ("dependencies", "dependentSchemas")
        for name, asked in said.get(keyword, {}).items()
    ]
    for keyword, name, asked in dependencies:
        at = said.at(path, keyword)
        if keyword == "dependencies":  # which the draft does not know, and whose author means it
            writer.narrow(at)
        then = writer.write(asked, JsonPath(at, name))
        if name in said.get("required", ()):
            writer.also(written, either([*rest, {"type": "object", "allOf": [then]}]) if rest else then, at)
        else:
            found = [*rest, _without_property(name), {"type": "object", "allOf": [then]}]
            writer.also(written, either(found), at)


def count(writer: Writer, said: Schema, written: Schema, path: JsonPath) -> None:
    """Write bounds of the number of properties; a name that comes twice would count as two."""
    required = set(said.get("required", ()))
    names = [name for name, one in written.get("properties", {}).items() if one is not False]
    optional = [name for name in names if name not in required]
    is_closed = written.get("additionalProperties") is False and "patternProperties" not in written
    least = said.get("minProperties", 0) - len(required)
    most = said.get("maxProperties", math.inf) - len(required)
    is_silent = "additionalProperties" not in written and "patternProperties" not in written
    suffices = is_closed or (is_silent and len(names) >= said.get("minProperties", 0))
    if least > 1 and not suffices:
        at = JsonPath(path, "minProperties")
        raise unsupported(at, "it is not enforced where names are open: one may come twice")
    if least > 0:
        if suffices and (least > 1 or required):
            _any_of(writer, written, optional, least, JsonPath(path, "minProperties"))
            if not is_closed:
                writer.narrow(JsonPath(path, "minProperties"))
        else:
            written["minProperties"] = said["minProperties"]
    if is_closed and most < len(optional):
        _any_of(writer, written, optional, len(optional) - int(most), JsonPath(path, "maxProperties"))
    elif not is_closed and most < math.inf:
        written["maxProperties"] = said["maxProperties"]


def _any_of(writer: Writer, written: Schema, names: Sequence[str], wanted: int, path: JsonPath) -> None:
    """Ask for `wanted` of the names to be there, or not to be there."""
    if math.comb(len(names), wanted) > _MOST_ALTERNATIVES:
        raise unsupported(path, "there are too many sets of properties that meet it")
    found: Alternatives = of_other_types(disjoint.types(written), "object")
    for some in itertools.combinations(names, wanted):
        if path.last == "minProperties":
            found.append({"type": "object", "required": list(some)})
        else:
            found.append({"type": "object", "properties": dict.fromkeys(some, False)})
    writer.also(written, either(found), path)


def _without_property(name: str) -> Schema:
    return {"type": "object", "properties": {name: False}}
