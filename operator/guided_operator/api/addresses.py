"""IP addresses as a pattern, for fields that hold one."""

from typing import Final

_WORD: Final = "[0-9A-Fa-f]{1,4}"
IPV6: Final = "|".join(
    (
        f"({_WORD}:){{7}}{_WORD}",
        *(f"({_WORD}:){{1,{7 - after}}}(:{_WORD}){{1,{after}}}" for after in range(1, 7)),
        f"({_WORD}:){{1,7}}:",
        f":((:{_WORD}){{1,7}}|:)",
    )
)
