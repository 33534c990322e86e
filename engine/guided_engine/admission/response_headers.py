"""Headers of ours in responses."""

import json
from collections.abc import MutableMapping, Sequence
from typing import Any, Final

from guided_contract import names

Message = MutableMapping[str, Any]

_MOST_CHARS: Final = 1024
_MORE: Final = "..."


def added(start: Message, name: str, value: str) -> Message:
    """Return the ASGI message that starts a response, with one header more; the value is plain ASCII."""
    return {**start, "headers": [*start.get("headers", ()), (name.encode(), value.encode())]}


def with_unenforced(start: Message, paths: Sequence[str]) -> Message:
    """Return the start of a response, with the JSONPaths of what its grammar does not enforce, if any."""
    return added(start, names.UNENFORCED_HEADER, _listed(paths)) if paths else start


def _listed(paths: Sequence[str]) -> str:
    """Return a JSON array in ASCII; where it gets too long, its last item says that there is more."""
    text = json.dumps(list(paths))
    kept = list(paths)
    while len(text) > _MOST_CHARS:
        kept.pop()
        text = json.dumps([*kept, _MORE])
    return text
