"""The errors of the API server, by what can be done about them.

::

    ApiError
    |- ObjectNotFound         404
    |- AlreadyExists          409 on create
    |- WriteConflict          409 otherwise: a stale resourceVersion, another object of that name by now (422)
    |- AccessForbidden        401, 403
    |- ObjectInvalid          400, 413, 422, of no schema, too large for etcd: the same bytes cannot help
    `- ServerUnavailable      429, 5xx, no answer: the only ones worth a retry as they are
"""

import json
from collections.abc import Mapping
from typing import Final

# A refusal can quote the whole object; its beginning says what was wrong.
MAX_MESSAGE_CHARS: Final = 500


class ApiError(Exception):
    """A request to the API server failed; the message is the server's own where it sent one."""

    def __init__(self, message: str, *, status: int = 0, retry_after_s: float | None = None) -> None:
        self.status = status
        self.retry_after_s = retry_after_s
        super().__init__(message)

    @property
    def is_lasting(self) -> bool:
        """Whether the same request would be refused again; else it may be over in a moment."""
        return False


class ObjectNotFound(ApiError):  # noqa: N818 - named as Kubernetes names the reason
    """The object, or its kind, does not exist."""


class AlreadyExists(ApiError):  # noqa: N818 - named as Kubernetes names the reason
    """An object of this name was there before the create."""


class WriteConflict(ApiError):  # noqa: N818 - named as Kubernetes names the reason
    """Somebody else wrote the object since it was read."""


class AccessForbidden(ApiError):  # noqa: N818 - named as Kubernetes names the reason
    """The operator's service account may not do this, or admission refuses it."""

    @property
    def is_of_the_account(self) -> bool:
        """Whether the account's rights were refused, as an API server does for a while after its start."""
        return self.status == 401 or "cannot" in str(self).partition("User ")[2]

    @property
    def is_lasting(self) -> bool:
        """As it is unless rights were refused."""
        return not self.is_of_the_account


class ObjectInvalid(ApiError):  # noqa: N818 - named as Kubernetes names the reason
    """The server refuses the object as it is."""

    @property
    def is_lasting(self) -> bool:
        """As it is: the object would have to be another."""
        return True


class ServerUnavailable(ApiError):  # noqa: N818 - named as Kubernetes names the reason
    """No answer, an overloaded server or a server fault; `retry_after_s` where the server said when."""


# What an object says that was made anew since it was read, where a write names the uid of the former.
_ANOTHER_OBJECT: Final = "metadata.uid: Invalid value"
# What is wrong with the object, though the API server calls it a fault of its own (500).
_OF_THE_OBJECT: Final = ("etcdserver: request is too large", "failed to create typed patch object")
_BY_STATUS: Final[Mapping[int, type[ApiError]]] = {
    400: ObjectInvalid,
    401: AccessForbidden,
    403: AccessForbidden,
    404: ObjectNotFound,
    409: WriteConflict,
    413: ObjectInvalid,
    422: ObjectInvalid,
}


def error_of(status: int, body: bytes, retry_after: str | None = None) -> ApiError:
    """Return the error that an HTTP response means; a `Status` object in `body` gives its message.

    `retry_after` is the header Retry-After; only a number of seconds counts.
    """
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        answer = {}
    message = answer.get("message") if isinstance(answer, dict) else None
    message = str(message or f"the API server answered {status}")[:MAX_MESSAGE_CHARS]
    retry_after_s = float(retry_after) if retry_after and retry_after.isdigit() else None
    if status == 409 and isinstance(answer, dict) and answer.get("reason") == "AlreadyExists":
        return AlreadyExists(message, status=status)
    if _ANOTHER_OBJECT in message:
        return WriteConflict(message, status=status)
    if any(each in message for each in _OF_THE_OBJECT):
        return ObjectInvalid(message, status=status)
    return _BY_STATUS.get(status, ServerUnavailable)(message, status=status, retry_after_s=retry_after_s)
