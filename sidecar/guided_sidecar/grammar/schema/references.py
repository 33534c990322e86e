"""What each reference of a schema names, and the name that it has in the normal form."""

import itertools
import re
from typing import Any, Final

import referencing
import referencing.exceptions
import referencing.jsonschema

from guided_contract.errors import ErrorCode, GuidedError
from guided_grammar.json_schema import subschemas
from guided_grammar.json_schema.keywords import DEFINITIONS
from guided_grammar.json_schema.subschemas import JsonPath
from guided_sidecar.grammar.schema import metaschema, schema

_PLAIN: Final = re.compile(r"[\w.-]+", re.ASCII)  # what no library reads otherwise in an address
Name = tuple[str, str]  # the keyword of the root below which it stands, and its key there


class References:
    """The references of one checked schema.

    Paths from the root are followed here; addresses, anchors and what is below an inner `$id` by the library
    `referencing`, which fetches nothing.
    """

    def __init__(self, root: Any) -> None:
        self._root = root
        self._names: dict[int, Name] = {}
        self._taken: set[Name] = set()
        self._targets: list[Any] = []  # kept, so that no other object gets the number of one of them
        self._fresh = (f"ref{number}" for number in itertools.count())
        self._resolvers: dict[int, Any] = {}
        self._ways: dict[int, JsonPath] = {}
        parts = subschemas.within(root)
        self._anchored = [part for part in parts if "$dynamicAnchor" in part or "$recursiveAnchor" in part]
        self._checked = {id(part) for part in parts}  # as schemas; elsewhere anything may stand
        self._has_inner_base = any("$id" in part or "id" in part for part in parts[1:])

    def target(self, part: dict[str, Any], keyword: str, path: JsonPath) -> Any:
        """Return the schema that the reference `keyword` of a part names.

        Raises
        ------
        GuidedError
            It names nothing in the schema, no schema, or what depends on the way there; with the path.
        """
        reference = part[keyword]
        if not isinstance(reference, str):
            raise _fault(path, "it is not a string")
        if keyword != "$ref" and (self._has_inner_base or len(self._anchored) > 1):
            raise _fault(path, "it depends on the schemas that lead there, which is not supported")
        if (reference == "#" or reference.startswith("#/")) and not self._has_inner_base:
            try:
                found = subschemas.referred(self._root, reference)
            except LookupError:
                raise _fault(path, "it names nothing in the schema") from None
        else:
            found = self._looked_up(part, reference, path)
        if not isinstance(found, dict | bool):
            raise _fault(path, "it does not name a schema")
        if isinstance(found, dict) and id(found) not in self._checked:
            schema.check_keywords(found, self._root, str(self.path(found, reference, path)))
            if any(self._resource(below).id() is not None for below in subschemas.within(found)):
                raise _fault(path, "it names what has an address of its own, below what is no keyword")
            self._checked.update(map(id, subschemas.within(found)))
        return found

    def name(self, target: dict[str, Any], reference: str) -> tuple[Name, bool]:
        """Return the name of a target in the normal form, and whether it is new."""
        known = self._names.get(id(target))
        if known is not None:
            return known, False
        names = subschemas.names(reference) if reference.startswith("#/") else []
        is_plain = len(names) == 2 and names[0] in DEFINITIONS and _PLAIN.fullmatch(names[1]) is not None
        name = (names[0], names[1]) if is_plain else ("$defs", self._unused())
        if name in self._taken:  # below another address
            name = ("$defs", self._unused())
        self._taken.add(name)
        self._names[id(target)] = name
        self._targets.append(target)
        return name, True

    def path(self, target: dict[str, Any], reference: str, otherwise: JsonPath) -> JsonPath:
        """Return the path of what a reference names, where that can be told."""
        if reference.startswith("#/") and not self._has_inner_base:
            return subschemas.way(self._root, reference)
        if not self._ways:
            self._ways = {id(place.schema): place.way for place in subschemas.walk(self._root)}
        return self._ways.get(id(target), otherwise)

    def _unused(self) -> str:
        taken = {name for keyword in DEFINITIONS for name in self._root.get(keyword, ())}
        taken.update(name for _, name in self._taken)
        return next(name for name in self._fresh if name not in taken)

    def _looked_up(self, part: dict[str, Any], reference: str, path: JsonPath) -> Any:
        if not self._resolvers:
            self._read_bases()
        resolver = self._resolvers.get(id(part))
        if resolver is None and self._has_inner_base:
            raise _fault(path, "it stands below what is no keyword, and so below no address")
        resolver = resolver or self._resolvers[id(self._root)]
        try:
            found = resolver.lookup(reference)
        except (referencing.exceptions.Unresolvable, ValueError, LookupError, TypeError):
            raise _fault(path, "it names nothing in the schema, and references are not fetched") from None
        if isinstance(found.contents, dict):
            self._note_bases(found.contents, found.resolver)
        return found.contents

    def _read_bases(self) -> None:
        """Note for each part below which address its references stand."""
        resource = self._resource(self._root)
        base = resource.id() or ""
        registry = referencing.Registry().with_resource(base, resource).crawl()
        self._note_bases(self._root, registry.resolver(base))

    def _note_bases(self, part: dict[str, Any], resolver: Any) -> None:
        """Note the same for a part, below whose address its resolver is, and for what is below it."""
        if id(part) in self._resolvers:
            return
        self._resolvers[id(part)] = resolver
        stack = [(child, resolver) for child in subschemas.children(part)]
        while stack:
            part, resolver = stack.pop()
            self._resolvers[id(part)] = resolver = resolver.in_subresource(self._resource(part))
            stack += [(child, resolver) for child in subschemas.children(part)]

    def _resource(self, part: dict[str, Any]) -> Any:
        dialect = referencing.jsonschema.specification_with(
            str(self._root.get("$schema", metaschema.DRAFT_2020)).removesuffix("#"),
            default=referencing.jsonschema.DRAFT202012,
        )
        return dialect.create_resource(part)


def _fault(path: JsonPath, reason: str) -> GuidedError:
    return GuidedError(ErrorCode.GRAMMAR_UNSUPPORTED, f"{path}: {reason}", path=str(path))
