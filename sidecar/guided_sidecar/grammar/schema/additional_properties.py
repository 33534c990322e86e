"""What a schema leaves unsaid about further properties and items, said the same for both libraries.

xgrammar, as vLLM runs it, generates no property that a schema does not name; llguidance generates any. Which
library `Auto` takes must not show in what is generated, so the normal form is closed before either compiles
it: an object that is silent on further properties has those that are named for it, by its schema or by what
judges it together with that: parts of `allOf`, branches, references beside other keywords. All that is then
generated is valid under the schema as it was written, which a further property would be, too.

llguidance takes `a` and its escape for two names, but where a pattern asks for them. So an object that is
open beside names has a pattern of any name in `allOf`, which llguidance keeps apart from the named ones. It
takes no patterns that may match one name: beside patterns there are no further names.
"""

from typing import Any, Final

from guided_grammar.json_schema import subschemas
from guided_grammar.json_schema.keywords import DEFINITIONS, NORMAL_MAPS, NORMAL_SINGLE, OF_TYPE

Schema = dict[str, Any]

_ANY_NAME: Final = "^[^\\u0000-\\u001f\\u007f]*$"  # llguidance spells these in two ways


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


class _Closing:
    def __init__(self, root: Schema, *, closes: bool, spells: bool) -> None:
        self._root = root
        self._closes, self._spells = closes, spells
        self._open: dict[str, str] = {}  # names of what references lead to that is left open

    def closed(self) -> Schema:
        body = {keyword: self._root[keyword] for keyword in self._root if keyword not in DEFINITIONS}
        closed: Schema = self._alone(body)
        for keyword in DEFINITIONS:
            if keyword in self._root:
                closed[keyword] = {name: self._alone(part) for name, part in self._root[keyword].items()}
        done: set[str] = set()
        while waiting := self._open.keys() - done:
            for reference in sorted(waiting):
                part = body if reference == "#" else subschemas.referred(self._root, reference)
                closed.setdefault("$defs", {})[self._open[reference]] = self._together(part)
            done |= waiting
        return closed

    def _alone(self, part: Any) -> Any:
        """Return a schema that alone judges a value, closed."""
        if not isinstance(part, dict) or part.keys() == {"$ref"}:
            return part
        says_more = not self._closes or self._says_more(part)
        always = {keyword: part[keyword] for keyword in part if keyword != "anyOf"}
        if "anyOf" in part and not says_more and not self._named(always):
            return {**self._together(always), "anyOf": [self._alone(branch) for branch in part["anyOf"]]}
        written: Schema = self._together(part)
        names = self._named(part)
        is_object = subschemas.Place(subschemas.ROOT, part).allows("object")
        if says_more and self._spells and names and not self._is_closed(part):
            only = _only(names)
            only.setdefault("patternProperties", {_ANY_NAME: True})
            written["allOf"] = [*written.get("allOf", ()), only]
        elif not says_more and is_object and (names or "properties" in part):
            if _is_compound(part):
                written["allOf"] = [*written.get("allOf", ()), _only(names)]
            else:
                written |= _only(names, written)
        return _spoken_out(written) if self._closes else written

    def _together(self, part: Any) -> Any:
        """Return a schema that judges a value with others: what it holds is closed, and not itself."""
        if not isinstance(part, dict):
            return part
        written = dict(part)
        for keyword in NORMAL_MAPS:
            if keyword in part:
                written[keyword] = {name: self._alone(one) for name, one in part[keyword].items()}
        for keyword in NORMAL_SINGLE:
            if keyword in part:
                written[keyword] = self._alone(part[keyword])
        if "prefixItems" in part:
            written["prefixItems"] = [self._alone(one) for one in part["prefixItems"]]
        for keyword in ("allOf", "anyOf"):
            if keyword in part:
                written[keyword] = [self._together(one) for one in part[keyword]]
        if "$ref" in part and self._named({"$ref": part["$ref"]}):
            written["$ref"] = f"#/$defs/{self._name(part['$ref'])}"
        return written

    def _name(self, reference: str) -> str:
        """Return the name of what a reference leads to where that is left open: no normal form has it."""
        return self._open.setdefault(reference, f"{reference.rpartition('/')[2].lstrip('#')}.open")

    def _says_more(self, part: Schema) -> bool:
        """Return whether a schema, or what always holds with it, says which further names there are."""
        return any(
            "additionalProperties" in one or one.get("minProperties", 0) > len(_own(one))
            for one in subschemas.judging(part, self._root, ["allOf"])
        )

    def _is_closed(self, part: Schema) -> bool:
        always = subschemas.judging(part, self._root, ["allOf"])
        return any(one.get("additionalProperties") is False for one in always)

    def _named(self, part: Schema) -> dict[tuple[str, str], None]:
        """Return the names in a schema, its parts and branches, and what they refer to, in their order."""
        return {name: None for one in subschemas.judging(part, self._root) for name in _own(one)}


def _own(part: Schema) -> dict[tuple[str, str], None]:
    """Return the names that a schema itself has, each with `properties` or `patternProperties`."""
    named = [(keyword, name) for keyword in NORMAL_MAPS for name in part.get(keyword, ())]
    return dict.fromkeys([*named, *(("properties", name) for name in part.get("required", ()))])


def _only(names: dict[tuple[str, str], None], said: Schema | None = None) -> Schema:
    """Return a schema of objects that have these properties alone, and what is `said` of them."""
    written: Schema = {"additionalProperties": False}
    for keyword, name in names:
        known = written.setdefault(keyword, dict((said or {}).get(keyword, {})))
        known.setdefault(name, True)
    return written


def _is_compound(part: Schema) -> bool:
    return not part.keys().isdisjoint(("$ref", "allOf", "anyOf"))


def _spoken_out(written: Schema) -> Schema:
    """Return a schema that alone judges a value, with the type that it implies, and what else may be."""
    if _is_compound(written) or not written.keys().isdisjoint(("const", "enum")):
        return written
    if "type" not in written:
        types = {OF_TYPE.get(keyword) for keyword in written if keyword not in DEFINITIONS}
        if len(types) != 1 or None in types:
            return written
        written = {**written, "type": types.pop()}
    listed = written.get("prefixItems", ())
    is_tuple = len(listed) > 0 and len(listed) >= int(written.get("minItems", 0))
    others = (("object", "additionalProperties", True), ("array", "items", not is_tuple))
    place = subschemas.Place(subschemas.ROOT, written)
    return {**{keyword: more for kind, keyword, more in others if place.allows(kind)}, **written}
