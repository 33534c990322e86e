"""What ranks follow along a text instead of having it compiled into its grammar, as it is sent.

The sidecar takes `minLength`, `maxLength` and `uniqueItems` out of a schema where the path to a value decides
them, and sends what it took out as Positions; guided_grammar.bounds follows a text through them, and
guided_grammar.unique_items its arrays. Characters are Unicode code points, as JSON Schema counts them.
"""

from typing import Annotated, Final

import msgspec

NOTHING: Final = -1  # no Position: nothing below is followed
UNBOUNDED: Final = 1 << 62


Characters = Annotated[int, msgspec.Meta(ge=0, le=UNBOUNDED)]


class Position(msgspec.Struct, frozen=True, kw_only=True):
    """What holds for every value at one place of a schema; numbers are indices of the list of Positions.

    Attributes
    ----------
    minimum, maximum
        Characters of a string here; maximum None: as many as it likes.
    properties, others
        Positions of an object's values by property, and of all that are not named.
    items
        Position of an array's items.
    unique_items
        Whether an array's items, which are strings, numbers and words, differ.
    whole_items
        Whether the numbers among them are integers: nothing but its end may follow a 0.
    begins
        Of the first Position alone, and of a text that is no JSON but has values of JSON in it: the Position
        of the value that is behind each of these texts. None of them begins but where a value does.
    """

    minimum: Characters = 0
    maximum: Characters | None = None
    properties: dict[str, int] = {}
    others: int = NOTHING
    items: int = NOTHING
    unique_items: bool = False
    whole_items: bool = False
    begins: dict[str, int] = {}
