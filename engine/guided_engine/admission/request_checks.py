"""Everything that is looked at in a request's body before the application reads it, in order."""

from typing import Final

from guided_engine.admission import request_json, request_tools, request_words
from guided_engine.admission.request_body import Keys
from guided_engine.admission.request_fault import Fault
from guided_engine.admission.request_routes import ROUTES


def fault(route: str, text: bytes, keys: Keys) -> Fault | None:
    """Return the first fault of a body, a JSON object with these keys; None: it may go on."""
    if route not in ROUTES:
        return None
    return request_json.fault(text, keys) or next(
        filter(None, (check(route, keys) for check in _CHECKS)), None
    )


_CHECKS: Final = (request_words.fault, request_tools.fault)
