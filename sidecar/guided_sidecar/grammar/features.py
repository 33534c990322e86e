"""Which backend `Auto` tries first, by what a grammar uses.

======================================  ======================  ===================================
the grammar                             `Auto` tries            because
======================================  ======================  ===================================
a keyword that xgrammar ignores         guidance                gaps.py
a keyword that llguidance ignores       xgrammar                gaps.py
a string with minLength or maxLength    guidance, xgrammar      xgrammar takes seconds to compile it
                                                                where ranks cannot count it, and fills
                                                                masks in strings 20 times slower
an object of more than 32 properties    guidance, xgrammar      xgrammar's artefact grows with the
                                                                square of their number
a repeat bound over 128 in a pattern    guidance                xgrammar's compiler raises
anything else                           xgrammar, guidance      vLLM's own order
======================================  ======================  ===================================
"""

import json
from collections.abc import Iterator
from typing import Any, Final

from guided_contract.wire import Backend, Kind
from guided_sidecar.grammar.gaps import repeats_too_often, xgrammar_ignores
from guided_sidecar.grammar.keywords import has_lengths
from guided_sidecar.grammar.subschemas import Place, in_tag, walk

_MANY_PROPERTIES: Final = 32  # measured: 50 make an artefact of 2 MB in 0.4 s, 200 one of 31 MB in 4 s


def find(schema: Any, keyword: str) -> str | None:
    """Return the path of a keyword's first use, or None."""
    return next((place.at(keyword) for place in walk(schema) if keyword in place.schema), None)


def order(kind: Kind, spec: Any) -> list[Backend]:
    """Return the backends that `Auto` tries, in order.

    Parameters
    ----------
    kind
        The grammar's kind.
    spec
        The parsed schema for json, else the text.
    """
    if kind == "regex" and repeats_too_often(spec):
        return ["guidance"]
    if kind == "structural_tag" and any(map(xgrammar_ignores, _schemas_of_tag(spec))):
        return ["guidance"]
    if kind != "json":
        return ["xgrammar", "guidance"]
    if xgrammar_ignores(spec) is not None:
        return ["guidance"]
    if any(_is_costly(place) for place in walk(spec)):
        return ["guidance", "xgrammar"]
    return ["xgrammar", "guidance"]


def _schemas_of_tag(spec: str) -> Iterator[Any]:
    return (inner for _, inner in in_tag(json.loads(spec)))


def _is_costly(place: Place) -> bool:
    """Return whether xgrammar takes much longer to compile, or in strings to fill, than llguidance."""
    properties = place.schema.get("properties")
    is_wide = isinstance(properties, dict) and len(properties) > _MANY_PROPERTIES
    return is_wide or (place.allows("string") and has_lengths(place.schema))
