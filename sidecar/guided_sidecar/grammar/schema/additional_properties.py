"""What a schema leaves unsaid about further properties and items, said the same for both libraries.

xgrammar, as vLLM runs it, generates no property that a schema does not name; llguidance generates any. Which
library `Auto` takes must not show in what is generated, so the normal form is closed before either compiles
it: an object that is silent on further properties has those that are named for it, by its schema or by one
that judges it together with that: a part of `allOf`, a branch, a reference beside other keywords. All that is
then generated is valid under the schema as it was written, which a further property would be, too.

llguidance takes `a` and its escape for two names, but where a pattern asks for them. So an object that is
open beside names has a pattern of any name in `allOf`, which llguidance keeps apart from the named ones. It
takes no patterns that may match one name: beside patterns there are no further names.
"""

import itertools
from collections.abc import Iterator
from typing import Any, Final

from guided_grammar.json_schema import subschemas
from guided_grammar.json_schema.keywords import DEFINITIONS, NORMAL_LISTS, NORMAL_MAPS, NORMAL_SINGLE, OF_TYPE

Schema = dict[str, Any]
Name = tuple[str, str]  # `properties` and a name, or `patternProperties` and a pattern
Names = tuple[Name, ...]

_ANY_NAME: Final = "^[^\\u0000-\\u001f\\u007f]*$"  # llguidance spells these in two ways
_OF_ITEMS: Final = frozenset(["const", "enum", "items", "prefixItems"])
_OF_OTHERS: Final = frozenset(
    [*NORMAL_MAPS, *NORMAL_SINGLE, *NORMAL_LISTS, "$ref", "minProperties", "required"]
)


def close(schema: Any, *, closes: bool = True, spells: bool = False) -> Any:
    """Return a normal form in which what is silent on further properties and items has none.

    A type that the other keywords imply is written out, and so is that others may follow, where they may.

    Parameters
    ----------
    closes
        False: what is silent stays as it is.
    spells
        Whether further names are told apart from the named ones by a pattern.
    """
    if not isinstance(schema, dict) or not (closes or spells):
        return schema
    return _Closing(schema, closes=closes, spells=spells).closed()


def _spoken_out(written: Schema) -> Schema:
    """Return a schema that alone judges a value, with the type that it implies, and what else may be."""
    if _is_compound(written) or not written.keys().isdisjoint(("anyOf", "const", "enum")):
        return written
    if "type" not in written:
        types = {OF_TYPE.get(keyword) for keyword in written if keyword not in DEFINITIONS}
        if len(types) != 1 or None in types:
            return written
        written = {**written, "type": types.pop()}
    place = subschemas.Place(subschemas.ROOT, written)
    others = (("object", "additionalProperties"), ("array", "items"))
    return {**{keyword: True for kind, keyword in others if place.allows(kind)}, **written}


def _with_others(written: Any) -> Any:
    """Return a schema that is left open, whose parts that name properties say that others may be, too."""
    if not isinstance(written, dict):
        return written
    parts = {key: list(map(_with_others, written[key])) for key in ("allOf", "anyOf") if key in written}
    said = {**written, **parts}
    return (
        {**said, "additionalProperties": said.get("additionalProperties", True)}
        if "properties" in said
        else said
    )


class _Closing:
    def __init__(self, root: Schema, *, closes: bool, spells: bool) -> None:
        self._root = root
        self._closes, self._spells = closes, spells
        self._body = {keyword: root[keyword] for keyword in root if keyword not in DEFINITIONS}
        self._open: dict[str, str] = {}  # what references lead to that is left open, by what is closed

    def closed(self) -> Schema:
        closed: Schema = self._closed(self._body)
        for keyword in DEFINITIONS:
            if keyword in self._root:
                closed[keyword] = {name: self._closed(part) for name, part in self._root[keyword].items()}
        done: set[str] = set()
        while waiting := self._open.keys() - done:
            for reference in sorted(waiting):
                definitions = closed.setdefault("$defs", {})
                definitions[self._open[reference]] = self._left_open(
                    self._body if reference == "#" else subschemas.referred(self._root, reference)
                )
            done |= waiting
        return closed

    def _closed(self, part: Any, around: Names = ()) -> Any:
        """Return a schema that alone judges a value, but for what names the properties `around`, closed."""
        if part is True and around:
            part = {}
        if not isinstance(part, dict) or (part.keys() == {"$ref"} and not around):
            return part
        if self._closes and not around and _OF_OTHERS.isdisjoint(part):
            return _spoken_out(part)
        if not self._closes or self._says_more(part):
            return self._opened(part, around)
        always = {keyword: part[keyword] for keyword in part if keyword != "anyOf"}
        names = tuple(dict.fromkeys([*around, *self._named(always)]))
        written = self._left_open(always)
        if "anyOf" in part:
            return written | {"anyOf": [self._closed(branch, names) for branch in part["anyOf"]]}
        if _is_silent_tuple(part):
            written["items"] = False
        is_object = subschemas.Place(subschemas.ROOT, part).allows("object")
        if is_object and (names or "properties" in part):
            if _is_compound(part):
                written["allOf"] = [*written.get("allOf", ()), _only(names)]
            else:
                written |= _only(names, written)
        return written if around else _spoken_out(written)

    def _opened(self, part: Schema, around: Names) -> Schema:
        """Return a schema that says itself what further names there are, beside the names `around`."""
        written: Schema = self._left_open(part)
        if self._closes:
            written = _with_others(written)
            written = written if around else _spoken_out(written)
        names = tuple(dict.fromkeys([*around, *self._named(part)]))
        if self._spells and names and not self._is_closed(part):
            only = _only(names)
            only.setdefault("patternProperties", {_ANY_NAME: True})
            written["allOf"] = [*written.get("allOf", ()), only]
        return written

    def _left_open(self, part: Any) -> Any:
        """Return a schema whose own objects and arrays stay as they are; those below them are closed."""
        if not isinstance(part, dict):
            return part
        written = dict(part)
        written |= _items_of(part)
        for keyword in NORMAL_MAPS:
            if keyword in part:
                written[keyword] = {name: self._closed(one) for name, one in part[keyword].items()}
        for keyword in NORMAL_SINGLE:
            if keyword in part:
                written[keyword] = self._closed(part[keyword])
        if "prefixItems" in part:
            written["prefixItems"] = [self._closed(one) for one in part["prefixItems"]]
        for keyword in ("allOf", "anyOf"):
            if keyword in part:
                written[keyword] = [self._left_open(one) for one in part[keyword]]
        if "$ref" in part and any(self._named({"$ref": part["$ref"]})):
            written["$ref"] = f"#/$defs/{self._name(part['$ref'])}"
        return written

    def _name(self, reference: str) -> str:
        """Return the name of what a reference leads to where that is left open: nobody else's."""
        if reference not in self._open:
            taken = {*self._root.get("$defs", ()), *self._open.values()}
            name = f"{reference.rpartition('/')[2].lstrip('#')}.open"
            ways = itertools.chain([name], (f"{name}{number}" for number in itertools.count(1)))
            self._open[reference] = next(way for way in ways if way not in taken)
        return self._open[reference]

    def _says_more(self, part: Any) -> bool:
        """Return whether a schema, or what always holds with it, says which further names there are."""
        return any(
            "additionalProperties" in one or one.get("minProperties", 0) > len(set(_own(one)))
            for one in subschemas.judging(part, self._root, ["allOf"])
        )

    def _is_closed(self, part: Any) -> bool:
        always = subschemas.judging(part, self._root, ["allOf"])
        return any(one.get("additionalProperties") is False for one in always)

    def _named(self, part: Any) -> Iterator[Name]:
        """Yield the names in a schema, its parts and branches, and what they refer to."""
        for one in subschemas.judging(part, self._root):
            yield from _own(one)


def _items_of(part: Schema) -> Schema:
    """Return what an array may hold that is silent: in a part of allOf, xgrammar takes that for nothing."""
    is_silent = "array" in part.get("type", ()) and part.keys().isdisjoint(_OF_ITEMS)
    return {"items": True} if is_silent else {}


def _own(part: Schema) -> Iterator[Name]:
    for keyword in NORMAL_MAPS:
        yield from ((keyword, name) for name in part.get(keyword, ()))
    yield from (("properties", name) for name in part.get("required", ()))


def _is_silent_tuple(part: Schema) -> bool:
    if "items" in part or _is_compound(part):
        return False
    count = len(part.get("prefixItems", ()))
    return count > 0 and count >= int(part.get("minItems", 0))


def _is_compound(part: Schema) -> bool:
    return "allOf" in part or "$ref" in part


def _only(names: Names, said: Schema | None = None) -> Schema:
    """Return a schema of objects that have these properties alone, and what is `said` of them."""
    written: Schema = {"additionalProperties": False}
    for keyword, name in names:
        known = written.setdefault(keyword, dict((said or {}).get(keyword, {})))
        known.setdefault(name, True)
    return written
