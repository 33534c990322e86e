"""The body of one HTTP request: read, what vLLM ignores of it, what stands where, and what is wrong there."""

import functools
import json
from collections.abc import Iterable
from typing import Any

from guided_contract.errors import ErrorCode, GuidedError


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
    known = _known(app, route)
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


def fault(path: str, message: str, code: ErrorCode = ErrorCode.REQUEST_UNKNOWN_CONSTRAINT) -> GuidedError:
    """Return the refusal of what a client wrote at a path of his body."""
    return GuidedError(code, f"{path}: {message}", path=path)


def invalid(path: str, message: str) -> GuidedError:
    """Return the refusal of what is no constraint in wrong words, but wrong."""
    return fault(path, message, ErrorCode.REQUEST_INVALID)
