"""What is wrong with a request's body, found before the application reads it."""

from typing import Final

from guided_contract.errors import ErrorCode, GuidedError

_MOST_CHARACTERS: Final = 200  # of a path, which may hold a client's own words


def fault(path: str, message: str, code: ErrorCode = ErrorCode.REQUEST_UNKNOWN_CONSTRAINT) -> GuidedError:
    """Return the refusal of what a client wrote at a path of his body."""
    path = path if len(path) <= _MOST_CHARACTERS else f"{path[:_MOST_CHARACTERS]}…"
    return GuidedError(code, f"{path}: {message}", path=path)


def invalid(path: str, message: str) -> GuidedError:
    """Return the refusal of what is no constraint in wrong words, but wrong."""
    return fault(path, message, ErrorCode.REQUEST_INVALID)
