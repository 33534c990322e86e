"""What authors' code raises: which of it ends a request, and how it is told, whatever it is."""

import logging
import traceback
from typing import Final

_log = logging.getLogger("guided_engine")

# How a process is told to end: vLLM raises them in its signal handlers, wherever it is. All else that is
# raised is the author's own; a panic of a library in Rust, for one, is no Exception.
PASSED_ON: Final = (SystemExit, KeyboardInterrupt)

_MOST_CHARACTERS: Final = 1000


def said(error: BaseException) -> str:
    """Return an exception's kind and words; those may be too many, or raise themselves."""
    return f"{type(error).__name__[:_MOST_CHARACTERS]}: {words(error)}"


def words(error: BaseException) -> str:
    """Return an exception's words alone."""
    try:
        return str(error)[:_MOST_CHARACTERS]
    except PASSED_ON:
        raise
    except BaseException:  # noqa: BLE001 - the author's code, too
        return "it does not say why"


def log_failure(what: str, error: BaseException) -> None:
    """Log what an author's code raised, and where."""
    where = "".join(traceback.format_tb(error.__traceback__))
    _log.warning("guidedmodel: %s: %s\n%s", what, said(error), where)
