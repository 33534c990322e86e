"""The body of one HTTP request: read, what vLLM ignores of it, what stands where, and what is wrong there."""

import difflib
import functools
import json
import re
from collections.abc import Iterable
from typing import Any, Final

from guided_contract.errors import ErrorCode, GuidedError

_MOST_TEXT: Final = 1000  # characters of an error
LONGEST_KEY: Final = 128  # characters that are looked at


def read(text: bytes) -> dict[str, Any] | None:
    """Return a body as vLLM will read it; None: it is no JSON object, which vLLM refuses itself.

    Raises
    ------
    GuidedError
        request_invalid: it is nested deeper than is read here. vLLM, with less on its stack, might.
    """
    try:
        value = json.loads(text)
    except RecursionError:
        raise GuidedError(ErrorCode.REQUEST_INVALID, "the body is nested too deeply") from None
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def ignored(app: Any, route: str, keys: Iterable[str]) -> list[str]:
    """Return the keys of a body that vLLM's class of the route does not know; none where it has no class."""
    known = _known(app, route.removesuffix("/batch"))  # which hands all on to the chat's class
    return [key for key in keys if key not in known] if known else []


@functools.lru_cache(64)
def _known(app: Any, route: str) -> frozenset[str]:
    for one in getattr(app, "routes", ()):
        body = getattr(one, "body_field", None) if getattr(one, "path", "") == route else None
        fields = getattr(body.field_info.annotation, "model_fields", None) if body else None
        if fields:
            return frozenset((*fields, *(field.alias for field in fields.values() if field.alias)))
    return frozenset()


def value_of(text: bytes | str) -> Any:
    """Return the value of a JSON text; None, too, where it is none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def at(value: Any, path: str) -> Any:
    """Return what stands at a path of keys below a value; None: nothing does."""
    for key in path.split("."):
        value = value.get(key) if isinstance(value, dict) else None
    return value


@functools.lru_cache(1024)
def like(key: str, likely: tuple[str, ...], likeness: float) -> str:
    """Return the word that a key is, in any spelling; "": it is none."""
    word = re.sub(r"[-_\s]", "", key).casefold()
    if word in likely or word.startswith("guided"):
        return word
    return next(iter(difflib.get_close_matches(word, likely, 1, likeness) if likeness < 1 else ()), "")


def fault(path: str, message: str, code: ErrorCode = ErrorCode.REQUEST_UNKNOWN_CONSTRAINT) -> GuidedError:
    """Return the refusal of what a client wrote at a path of his body, cut where a key of his is long."""
    path = path[:_MOST_TEXT]
    return GuidedError(code, f"{path}: {message[:_MOST_TEXT]}", path=path)


def invalid(path: str, message: str) -> GuidedError:
    """Return the refusal of what is no constraint in wrong words, but wrong."""
    return fault(path, message, ErrorCode.REQUEST_INVALID)
