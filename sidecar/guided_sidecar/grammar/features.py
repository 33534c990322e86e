"""Which backend is the cheaper one for a grammar, of those that enforce it.

======================================  ======================  ===================================
the grammar                             first                   because
======================================  ======================  ===================================
a string with minLength or maxLength    guidance                xgrammar takes seconds to compile it
                                                                where ranks cannot count it, and fills
                                                                masks in strings 20 times slower
an object of more than 32 properties    guidance                xgrammar's artefact grows with the
                                                                square of their number
anything else                           xgrammar                vLLM's own order
======================================  ======================  ===================================
"""

from typing import Any, Final

from guided_contract.wire import Backend, Kind
from guided_sidecar.grammar.keywords import has_lengths
from guided_sidecar.grammar.subschemas import Place, walk

_MANY_PROPERTIES: Final = 32  # measured: 50 make an artefact of 2 MB in 0.4 s, 200 one of 31 MB in 4 s


def find(schema: Any, keyword: str) -> str | None:
    """Return the path of a keyword's first use, or None."""
    return next((place.at(keyword) for place in walk(schema) if keyword in place.schema), None)


def order(kind: Kind, spec: Any) -> list[Backend]:
    """Return the backends, the cheaper one first.

    Parameters
    ----------
    kind
        The grammar's kind.
    spec
        The parsed schema for json, else the text.
    """
    if kind == "json" and any(_is_costly(place) for place in walk(spec)):
        return ["guidance", "xgrammar"]
    return ["xgrammar", "guidance"]


def _is_costly(place: Place) -> bool:
    """Return whether xgrammar takes much longer to compile, or in strings to fill, than llguidance."""
    properties = place.schema.get("properties")
    is_wide = isinstance(properties, dict) and len(properties) > _MANY_PROPERTIES
    return is_wide or (place.allows("string") and has_lengths(place.schema))
