"""What is wrong with a request's body, found before the application reads it."""

from typing import Final, NamedTuple

from guided_contract.errors import ErrorCode, GuidedError
from guided_contract.wire import Kind

_MOST_CHARACTERS: Final = 200  # of a path, which may hold a client's own words


class Fault(NamedTuple):
    """A fault, where the client wrote it.

    Attributes
    ----------
    kind
        Of the constraint that was meant, where it is known.
    """

    path: str
    message: str
    kind: Kind | None = None
    code: ErrorCode = ErrorCode.REQUEST_UNKNOWN_CONSTRAINT

    @property
    def error(self) -> GuidedError:
        """Return the refusal."""
        path = self.path if len(self.path) <= _MOST_CHARACTERS else f"{self.path[:_MOST_CHARACTERS]}…"
        message = f"{path}: {self.message}" if path else self.message
        return GuidedError(self.code, message, path=path or None)
