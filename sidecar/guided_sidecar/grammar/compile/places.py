"""The places of a schema at which values stand that a rank may follow."""

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from guided_contract.counting import NOTHING
from guided_grammar.json_schema import keywords


@dataclasses.dataclass(slots=True)
class Place:
    """All schemas that may hold at one place, and where its values' parts are; None: nothing can be there.

    Those in `beside`, by id, never hold alone: what they leave open another one decides.
    """

    schemas: tuple[dict[str, Any], ...]
    beside: frozenset[int] = frozenset()
    bounds: keywords.Text | None = None
    properties: dict[str, int] = dataclasses.field(default_factory=dict)
    others: int = NOTHING
    prefix: list[int] = dataclasses.field(default_factory=list)
    items: int = NOTHING
    unique_items: bool = False
    whole_items: bool = False

    def leaves_open(self, schema: dict[str, Any]) -> bool:
        """Return whether another schema decides about an array's items."""
        return id(schema) in self.beside and schema.get("items", True) is True and "prefixItems" not in schema

    def parts(self) -> Iterator[int]:
        """Yield the numbers of the places of its values' parts."""
        yield from self.properties.values()
        yield from self.prefix
        yield self.others
        yield self.items


def said_of_part(
    place: Place, schemas: list[dict[str, Any]], of: Callable[[list[dict[str, Any]]], Iterable[Any]]
) -> Iterator[Any]:
    """Yield what schemas of a place say of one part, but where one leaves it to others."""
    for schema in schemas:
        is_beside = id(schema) in place.beside
        yield from (part for part in of([schema]) if not (is_beside and part is True))
