"""Names of properties that are told apart however they are spelt.

llguidance takes `a` and its escape for two names, but where a pattern asks for them. So further names are
those of a pattern: all but the named ones, and but those of patterns that list beginnings, as `^x-` does. Of
what other patterns leave over there is no pattern, and nothing is generated.
"""

from collections.abc import Collection, Iterable
from typing import Any

from guided_grammar.json_schema import subschemas
from guided_grammar.json_schema.keywords import BRANCHES, DEFINITIONS, NORMAL_MAPS
from guided_sidecar.grammar.schema import patterns

Schema = dict[str, Any]


def once(schema: Any) -> Any:
    """Return a normal form in which no further name is another one, or one of a pattern, with escapes."""
    if not any(_is_open(part) and _has_names(part) for part in subschemas.within(schema)):
        return schema
    written = copied(schema)
    _Spelling(written).write()
    return written


def copied(value: Any) -> Any:
    """Return a deep copy of what was read from JSON, in a tenth of copy.deepcopy's time."""
    if isinstance(value, dict):
        return {key: copied(part) for key, part in value.items()}
    return [copied(part) for part in value] if isinstance(value, list) else value


def _is_open(part: Schema) -> bool:
    return part.get("additionalProperties", True) is not False


def _has_names(part: Schema) -> bool:
    return any(keyword in part for keyword in (*NORMAL_MAPS, "required"))


def _others(names: Collection[str], of_patterns: Iterable[str], further: Any) -> Schema:
    """Return `patternProperties` for further names, and no others."""
    listed = [patterns.beginnings(pattern) for pattern in of_patterns]
    begun = [beginning for each in listed if each is not None for beginning in each]
    pattern = None if None in listed else patterns.other_than(names, begun)
    return {"additionalProperties": False} | (
        {} if pattern is None else {"patternProperties": {pattern: further}}
    )


class _Spelling:
    """Writes a schema's names anew, in place.

    A value is judged by one schema together with the parts of `allOf`, the branches and the references of it.
    Where there are such, what all of them say of names is said once beside them.
    """

    def __init__(self, root: Schema) -> None:
        self._root = root

    def write(self) -> None:
        """Write all names."""
        parts = [*subschemas.within(self._root)[1:], self._root]
        compounds = filter(_is_compound, parts)
        together = {id(one) for part in compounds for one in self._judging(part) if one is not part}
        for part in parts:
            if id(part) in together and part is not self._root:
                continue  # whoever refers to it says it
            if _is_compound(part) or any(id(one) in together for one in self._judging(part)):
                self._write_beside(part)
            elif _is_open(part) and _has_names(part):
                _write_in(part)

    def _judging(self, part: Schema) -> list[Schema]:
        return subschemas.judging(part, self._root)

    def _is_closed(self, part: Any, seen: frozenset[int] = frozenset()) -> bool:
        """Return whether a schema takes no other names than it lists."""
        if not isinstance(part, dict) or id(part) in seen:
            return part is False
        seen |= {id(part)}
        if not _is_open(part) or not subschemas.Place(subschemas.ROOT, part).allows("object"):
            return True
        if any(self._is_closed(one, seen) for one in part.get("allOf", ())):
            return True
        if "$ref" in part and self._is_closed(subschemas.referred(self._root, part["$ref"]), seen):
            return True
        branches = part.get("anyOf", ())
        return bool(branches) and all(self._is_closed(one, seen) for one in branches)

    def _write_beside(self, part: Schema) -> None:
        judging = self._judging(part)
        if not any(map(_has_names, judging)) or self._is_closed(part):
            return
        named = {
            name: True for one in judging for name in (*one.get("properties", ()), *one.get("required", ()))
        }
        of_patterns = {name: True for one in judging for name in one.get("patternProperties", ())}
        others = _others(named, of_patterns, further=True)
        said: Schema = {"properties": named} if named else {}
        if all_patterns := of_patterns | others.pop("patternProperties", {}):
            said["patternProperties"] = all_patterns
        reference = {"$ref": part.pop("$ref")} if "$ref" in part and not _is_compound(part) else None
        part["allOf"] = [*part.get("allOf", ()), *([reference] if reference else ()), said | others]


def _is_compound(part: Schema) -> bool:
    """Return whether a schema judges together with others; one that only refers to another is that one."""
    beside = part.keys() - {*DEFINITIONS, "$ref"}
    return any(keyword in part for keyword in BRANCHES) or ("$ref" in part and bool(beside))


def _write_in(part: Schema) -> None:
    further = part.get("additionalProperties", True)
    of_patterns = part.get("patternProperties", {})
    # What is said of a name that a pattern may match is not known, unless nothing is.
    required = [
        name for name in part.get("required", ()) if further is True or not _may_match(name, of_patterns)
    ]
    own = part.get("properties", {})
    if named := own | {name: further for name in required if name not in own}:
        part["properties"] = named
    others = _others(named, of_patterns, further)
    if patterned := of_patterns | others.pop("patternProperties", {}):
        part["patternProperties"] = patterned
    part |= others


def _may_match(name: str, of_patterns: Iterable[str]) -> bool:
    begun = map(patterns.beginnings, of_patterns)
    return any(each is None or name.startswith(tuple(each)) for each in begun)
