"""Fields that are cut to what they take, for what pods say has no bounds and a status must be written.

Terminals show a status: of what turns a text's direction, moves the cursor or is not seen, nothing stays.
"""

from typing import Annotated, Any, Final

from pydantic import BeforeValidator, Field

from guided_operator.api.base import text

MAX_COUNT: Final = (1 << 31) - 1
_MORE: Final = "…"
_MOST: Final = 6  # bytes of a letter, as \\u003c


def cut(most: int) -> BeforeValidator:
    """Return what cuts a text that can be seen to so many bytes, as Go writes it in JSON."""

    def shortened(value: Any) -> Any:
        if isinstance(value, str) and not value.isprintable():
            value = "".join(letter for letter in value if letter == "\n" or letter.isprintable()) or _MORE
        if not isinstance(value, str) or len(value) * _MOST <= most or sum(map(_size, value)) <= most:
            return value
        room, kept = most - _size(_MORE), 0
        while (room := room - _size(value[kept])) >= 0:
            kept += 1
        return value[:kept] + _MORE

    return BeforeValidator(shortened)


def _size(letter: str) -> int:
    if letter in '"\\':
        return 2
    return _MOST if letter in "<>&\u2028\u2029" or letter < " " else len(letter.encode())


def _counted(value: Any) -> Any:
    return min(max(value, 0), MAX_COUNT) if isinstance(value, int) else value


Word = Annotated[str, text(64, least=0), cut(64)]
Message = Annotated[str, text(128, least=0), cut(128)]
Count = Annotated[int, Field(ge=0, le=MAX_COUNT), BeforeValidator(_counted)]
