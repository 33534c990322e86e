"""What each reference of a schema names."""

import urllib.parse
from typing import Any

from guided_grammar.json_schema import subschemas
from guided_grammar.json_schema.subschemas import ROOT, JsonPath, Place
from guided_sidecar.grammar.schema import dialect, schema
from guided_sidecar.grammar.schema.faults import fault, unsupported
from guided_sidecar.grammar.schema.limits import shown


class References:
    """The references of one checked schema: paths, anchors, and the addresses that parts give themselves."""

    def __init__(self, root: Any) -> None:
        self._root = root
        self._draft = dialect.of(root)
        self._named: dict[str, Any] = {"": root}  # by address, or address#anchor
        self._bases: dict[int, str] = {}  # the address below which each part stands, by its id
        self._ways: dict[int, JsonPath] = {}

    def target(self, part: dict[str, Any], path: JsonPath) -> tuple[Any, JsonPath]:
        """Return the schema that the $ref of a part names, and its path.

        Raises
        ------
        GuidedError
            It names nothing in the schema, or no schema; with the path.
        """
        reference = part["$ref"]
        if not isinstance(reference, str):
            raise unsupported(path, "it is not a string")
        try:
            if not self._bases:
                self._note(self._root, ROOT, "")
            address, _, fragment = _joined(self._base(part), reference).partition("#")
            found, way = self._found(address, urllib.parse.unquote(fragment))
        except (LookupError, TypeError, ValueError):
            if reference.startswith("#"):
                raise fault(str(path), f"{shown(reference)} does not exist in the schema") from None
            reason = f"{shown(reference)} points outside of the schema: references are not fetched"
            raise unsupported(path, reason) from None
        if not isinstance(found, dict | bool):
            raise unsupported(path, "it does not lead to a schema")
        if isinstance(found, dict) and id(found) not in self._bases:  # elsewhere anything may stand
            schema.check_part(found, self._root, way)
            self._note(found, way, address)
        return found, way

    def _base(self, part: dict[str, Any]) -> str:
        """Return the address below which a part stands; within `dependencies`, say, it may not be known."""
        if id(part) not in self._bases and len({*self._bases.values()}) > 1:
            raise LookupError
        return self._bases.get(id(part), self._bases[id(self._root)])

    def _found(self, address: str, fragment: str) -> tuple[Any, JsonPath]:
        if fragment and not fragment.startswith("/"):
            found = self._named[f"{address}#{fragment}"]
            return found, self._ways[id(found)]
        found = self._named[address]
        way = self._ways[id(found)]
        for key in subschemas.names(f"#{urllib.parse.quote(fragment)}"):
            step = int(key) if isinstance(found, list) and key.isdecimal() else key
            found, way = found[step], JsonPath(way, step)
        return found, way

    def _note(self, part: dict[str, Any], way: JsonPath, base: str) -> None:
        """Note the addresses and anchors of a part and of all below it."""
        stack = [(Place(way, part), base)]
        while stack:
            place, base = stack.pop()
            own = place.schema.get("id" if self._draft == 4 else "$id")
            is_hidden = self._draft < 2019 and "$ref" in place.schema
            if isinstance(own, str) and not is_hidden:
                address, _, anchor = _joined(base, own).partition("#")
                base = address
                self._name(f"{base}#{anchor}" if anchor else base, place.schema)
            for keyword in ("$anchor", "$dynamicAnchor") if self._draft >= 2019 else ():
                if keyword in place.schema:
                    self._name(f"{base}#{place.schema[keyword]}", place.schema)
            self._bases[id(place.schema)] = base
            self._ways[id(place.schema)] = place.way
            stack += [(inner, base) for inner in subschemas.inner(place)]

    def _name(self, name: str, part: dict[str, Any]) -> None:
        self._named[name] = part if self._named.get(name, part) is part else None  # what two have names none


def _joined(base: str, reference: str) -> str:
    return base + reference if reference.startswith("#") else urllib.parse.urljoin(base, reference)
