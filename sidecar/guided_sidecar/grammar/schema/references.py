"""What a reference of a schema names: a JSON pointer from the schema's root, `#` or `#/...`."""

import json
from typing import Any

from guided_grammar.json_schema import subschemas
from guided_grammar.json_schema.subschemas import ROOT, JsonPath
from guided_sidecar.grammar.schema import dialect, schema
from guided_sidecar.grammar.schema.faults import fault, unsupported
from guided_sidecar.grammar.schema.limits import shown


class References:
    """The references of one checked schema.

    Raises
    ------
    GuidedError
        grammar_unsupported: a part with an address of its own has references, whose `#` is that part.
    """

    def __init__(self, root: Any) -> None:
        self._root = root
        self._checked: set[int] = set()  # by their ids: what is a schema for certain
        _refuse_addresses(root, "id" if dialect.of(root) == 4 else "$id")

    def target(self, reference: Any, path: JsonPath) -> tuple[Any, JsonPath]:
        """Return the schema that a reference names, and its path.

        Raises
        ------
        GuidedError
            It names nothing in the schema, or no schema; with the path.
        """
        if not isinstance(reference, str) or not (reference == "#" or reference.startswith("#/")):
            reason = (
                f"{shown(reference)} is not a path such as `#/$defs/NAME`; other references are not fetched"
            )
            raise unsupported(path, reason)
        try:
            found, way = subschemas.led_to(self._root, reference)
        except (LookupError, ValueError):
            raise fault(str(path), f"{shown(reference)} does not exist in the schema") from None
        if not isinstance(found, dict | bool):
            raise unsupported(path, "it does not point to a schema")
        if isinstance(found, dict):
            self._checked = self._checked or {id(one) for one in subschemas.within(self._root)}
            if id(found) not in self._checked:  # elsewhere anything may stand
                schema.check_part(found, self._root, way)
                self._checked |= {id(one) for one in subschemas.within(found)}
        return found, way


def _refuse_addresses(root: Any, keyword: str) -> None:
    """Refuse a part with an address and references, wherever it stands: those may lead through anything."""
    stack = [(ROOT, root)]
    while stack:
        way, part = stack.pop()
        below = part.items() if isinstance(part, dict) else enumerate(part) if isinstance(part, list) else ()
        stack += [(JsonPath(way, key), one) for key, one in below if isinstance(one, dict | list)]
        own = part.get(keyword) if isinstance(part, dict) and part is not root else None
        if isinstance(own, str) and not own.startswith("#") and '"$ref": "' in json.dumps(part):
            reason = "a subschema with its own $id that contains references is not supported"
            raise unsupported(JsonPath(way, keyword), reason)
