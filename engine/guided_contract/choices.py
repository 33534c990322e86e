"""What a resource chooses of guided decoding, and a request for itself: enum values as in the CRD."""

from typing import Final, Literal

RequestOption = Literal["Backend", "UnsupportedKeywords", "Whitespace"]  # what a request may choose
UnsupportedKeywords = Literal["Allow", "Reject", "Route"]
Whitespace = Literal["Compact", "Flexible", "Unbounded"]  # between two tokens of JSON; not within strings

# A line's end of two characters and ten levels of four columns: ten is as deep as OpenAI takes schemas, four
# as wide as printers indent. What is nested deeper is indented by less, and is as valid.
BOUND: Final = 42

# Characters between two tokens at most; None: any number.
MOST: Final[dict[Whitespace, int | None]] = {"Compact": 0, "Flexible": BOUND, "Unbounded": None}

MOST_PROCESSORS: Final = 16  # logits processors of a resource, and so of a request
