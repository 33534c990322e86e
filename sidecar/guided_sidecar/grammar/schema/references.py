"""What a reference of a schema names: a JSON pointer from the schema's root, `#` or `#/...`."""

from typing import Any

from guided_contract.errors import ErrorCode, GuidedError
from guided_grammar.json_schema import subschemas
from guided_grammar.json_schema.subschemas import JsonPath
from guided_sidecar.grammar.schema import dialect, schema
from guided_sidecar.grammar.schema.faults import fault, moved, unsupported
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
        self._address = "id" if dialect.of(root) == 4 else "$id"
        self._checked: set[int] = set()  # by their ids: what is a schema for certain
        self._note(root)

    def target(self, reference: Any, path: JsonPath) -> tuple[Any, JsonPath]:
        """Return the schema that a reference names, and its path.

        Raises
        ------
        GuidedError
            It names nothing in the schema, or no schema; with the path.
        """
        if not isinstance(reference, str) or not (reference == "#" or reference.startswith("#/")):
            reason = f"{shown(reference)} is no path, `#/...`: other references are not fetched"
            raise unsupported(path, reason)
        try:
            found, way = subschemas.led_to(self._root, reference)
        except (LookupError, ValueError):
            raise fault(str(path), f"{shown(reference)} does not exist in the schema") from None
        if not isinstance(found, dict | bool):
            raise unsupported(path, "it does not lead to a schema")
        if isinstance(found, dict) and id(found) not in self._checked:  # elsewhere anything may stand
            schema.check_part(found, self._root, way)
            try:
                self._note(found)
            except GuidedError as error:
                raise moved(error, str(way)) from error
        return found, way

    def _note(self, part: Any) -> None:
        for place in subschemas.places(part):
            self._checked.add(id(place.schema))
            own = place.schema.get(self._address, "#")
            if place.schema is self._root or not isinstance(own, str) or own.startswith("#"):
                continue
            if (below := subschemas.find(place.schema, "$ref")) is not None:
                reason = f"it is not supported in a part that has an address of its own, {self._address}"
                raise fault(subschemas.below(place.path, below), reason, ErrorCode.GRAMMAR_UNSUPPORTED)
