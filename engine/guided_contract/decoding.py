"""What a decoder of ours raises for bytes that are not what it expects, whoever sent them."""

from typing import Final

import msgspec

# No value of the type, text that is not UTF-8, more nesting than the decoder follows.
MALFORMED: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
