"""What a walk through a compiled grammar may find wrong, in words for whoever wrote the grammar."""

from typing import Final, NamedTuple

from guided_contract.errors import ErrorCode

# CPU time for one mask, or for accepting one token. A rank that takes so long for one sequence holds up its
# whole batch: a forward pass takes about as long, and real schemas take a thousandth.
SLOW_S: Final = 0.01


class Fault(NamedTuple):
    """Why a grammar is refused; fields as in errors.GuidedError."""

    code: ErrorCode
    message: str
    path: str | None = None


def rejects(step: int) -> Fault:
    """Return the fault of a token that the mask allows and the matcher does not take, after so many."""
    reason = f"after {step} tokens, it rejects a token that its mask allows"
    return Fault(ErrorCode.GRAMMAR_DEAD_END, f"the grammar has a dead end: {reason}")


def dead_end(step: int) -> Fault:
    """Return the fault of a place that no token can follow."""
    after = (
        f"after {step} tokens no token can follow"
        if step
        else "no token can begin it, because no finite text matches it"
    )
    return Fault(ErrorCode.GRAMMAR_DEAD_END, f"the grammar has a dead end: {after}")


def slow_mask(step: int, took_s: float) -> Fault:
    """Return the fault of a mask that takes long."""
    return _slow(f"after {step} tokens, computing the next token mask takes {1e3 * took_s:.0f} ms")


def slow_token(step: int, took_s: float) -> Fault:
    """Return the fault of a token that takes long to accept."""
    return _slow(f"after {step} tokens, accepting the next one takes {1e3 * took_s:.0f} ms")


def _slow(message: str) -> Fault:
    return Fault(ErrorCode.GRAMMAR_SLOW, f"{message}; the limit is {1e3 * SLOW_S:.0f} ms")
