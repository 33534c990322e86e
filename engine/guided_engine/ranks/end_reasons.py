"""How a sequence ended that neither failed nor came to its grammar's end."""

from collections.abc import Callable, Sequence
from typing import Final

from guided_contract.records import EndReason

# By vLLM's finish reasons.
_ENDS: Final[dict[str, EndReason]] = {"stop": "stopped", "repetition": "stopped", "length": "length"}


def of(finish: str, stop_texts: Sequence[str], text: Callable[[], bytes]) -> EndReason:
    """Return why it ended.

    Parameters
    ----------
    finish
        vLLM's finish reason; empty where the engine core did not tell it.
    stop_texts
        The request's stop strings: the API server finds one and aborts the request as if its client had
        gone.
    text
        Returns what was generated.
    """
    if finish in _ENDS:
        return _ENDS[finish]
    generated = text() if stop_texts else b""
    return "stopped" if any(stop.encode() in generated for stop in stop_texts) else "aborted"
