"""Few names, texts and patterns, and the values that often meet one of their schemas' branches.

So what is told of such a schema can be compared with what jsonschema says of all values that matter to it.
"""

import itertools
import random
from typing import Any, Final

from support.compositions.schemas import Drawing, Schema, Words

_PATTERNS: Final = (
    *("^x", "^y", "^z", "x", "y$", "^[xy]", "^[^x]", "^x+$", "^(x|y)$", "^(?:xy|z)", "^.$", "^..$", "^$", ""),
    *(
        "^[0-9]+$",
        "^[a-z]+$",
        r"^\d",
        r"^\w+$",
        r"\W",
        "^(?!x)",
        "^(?=x)..$",
        "x|y",
        "^x|y$",
        "^x?y?$",
        "x{2,}",
    ),
)
_TEXTS: Final = ("", "x", "y", "z", "xy", "yx", "xx", "zz", "xyz", "1", "12", "x1", "é", "-", "x y")
_NAMES: Final = ("x", "y", "xy")
_LEAVES: Final = (*_TEXTS, None, True, False, 0, 1, 2, 3, -1, 1.5, 7)


def values() -> list[Any]:
    """Return the values that are looked at: leaves, and small arrays and objects of leaves."""
    some = ("x", "y", "z", "xx", "1", 0, 1, 3, None)
    arrays = [
        list(items) for count in range(4) for items in itertools.product(("x", "y", 1, None), repeat=count)
    ]
    arrays += [[one] for one in _LEAVES]
    objects: list[Any] = [{name: one} for name in (*_NAMES, "z") for one in _LEAVES]
    pairs = itertools.product(itertools.combinations((*_NAMES, "z"), 2), some, some)
    objects += [{first: one, second: other} for (first, second), one, other in pairs]
    objects += [dict.fromkeys(_NAMES, one) for one in some]
    nested: list[Any] = [{"x": one} for one in (*arrays[:12], {}, {"x": "x"}, {"y": "y"}, {"x": 1, "y": "x"})]
    return [*_LEAVES, {}, *arrays, *objects, *nested, [{}], [{"x": "x"}], [["x"]]]


def schema(chance: random.Random) -> Schema:
    """Return a drawn schema."""
    return Drawing(chance, Words(_NAMES, _PATTERNS, lambda *_: chance.choice(_LEAVES))).small()
