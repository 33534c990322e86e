"""Our errors as vLLM lets them through; imports vLLM, so only the patches of the API server import it."""

from http import HTTPStatus
from typing import NoReturn

from vllm.exceptions import GenerationError, GracefulHTTPError

from guided_contract.errors import GuidedError
from guided_contract.wire import Kind
from guided_engine.admission.exchange import current


class GuidedRequestError(GracefulHTTPError, GenerationError):  # type: ignore[misc]  # vLLM is untyped
    """A refusal or failure of one request, on its way through vLLM's handlers.

    As GracefulHTTPError, `AsyncLLM.generate` raises it as it is, and routes without our middleware answer
    with its status; as GenerationError, streaming handlers end the stream without logging a stack trace.
    """

    def __init__(self, error: GuidedError) -> None:
        GracefulHTTPError.__init__(self, str(error), HTTPStatus(error.code.http_status))
        self.status_code = self.http_status
        self.error = error


def refuse(error: GuidedError, kind: Kind | None = None) -> NoReturn:
    """Raise an error as vLLM's handlers let it through, and have the middleware answer with it.

    `kind`: of the constraint that was asked for, where it is known.
    """
    exchange = current.get()
    if exchange is not None:
        exchange.kind = kind
        exchange.fail(error)
    raise GuidedRequestError(error)
