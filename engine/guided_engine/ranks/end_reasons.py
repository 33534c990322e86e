"""How a sequence ended that neither failed nor came to its grammar's end, as far as its rank can tell."""

from collections.abc import Callable

from guided_contract.records import EndReason
from guided_engine.ranks.sequence import GuidedSequence


def is_known(sequence: GuidedSequence) -> bool:
    """Return whether its tokens show an end."""
    return sequence.is_completed or sequence.is_full or sequence.is_stopped


def of(sequence: GuidedSequence, text: Callable[[], bytes]) -> EndReason:
    """Return why it ended; `text` returns what was generated.

    The API server finds stop strings, and aborts the request as if its client had gone.
    """
    if sequence.is_stopped:
        return "stopped"
    if sequence.is_full:
        return "length"
    generated = text() if sequence.stop_texts else b""
    return "stopped" if any(stop.encode() in generated for stop in sequence.stop_texts) else "aborted"
