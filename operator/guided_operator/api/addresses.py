"""IP addresses as patterns, for fields that hold one."""

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
_BYTE: Final = "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
IP: Final = rf"^(({_BYTE}\.){{3}}{_BYTE}|{IPV6})$"
