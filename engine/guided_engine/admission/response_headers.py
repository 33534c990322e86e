"""Headers of ours in responses."""

import json
from collections.abc import Sequence
from typing import Final

from starlette.types import Message

_MOST_CHARS: Final = 1024
_MOST_ITEMS: Final = 100
_MORE: Final = "..."


def added(start: Message, name: str, value: str) -> Message:
    """Return the ASGI message that starts a response, with one header more; the value is plain ASCII."""
    return {**start, "headers": [*start.get("headers", ()), (name.encode(), value.encode())]}


def with_listed(start: Message, name: str, items: Sequence[str]) -> Message:
    """Return the start of a response, with a header that lists such items as there are."""
    return added(start, name, _listed(items)) if items else start


def _listed(items: Sequence[str]) -> str:
    """Return a JSON array in ASCII; where it gets too long, its last item says that there is more."""
    kept: list[str] = []
    left = _MOST_CHARS - len(json.dumps([_MORE]))
    for item in items[:_MOST_ITEMS]:
        # What is longer is not written out to be counted.
        left -= len(json.dumps(item)) + len(", ") if len(item) <= left else _MOST_CHARS
        if left < 0:
            break
        kept.append(item)
    return json.dumps(kept if len(kept) == len(items) else [*kept, _MORE])
