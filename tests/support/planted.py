"""Faults planted on one rank alone, by way of logits processors that a request names; for tests.

A processor is the user's code on every rank, so it can do to one rank what a broken machine would.
"""

from typing import Any, Final

from guided_engine.processors.interface import ProcessorFactory, SequenceInfo, SequenceProcessor
from guided_engine.ranks import bitmasks, prototypes

STRAYS: Final = "strays"  # samples other tokens than the other ranks, all allowed
RAISES: Final = "raises"  # its processor raises
MATCHER_RAISES: Final = "matcher-raises"
MASK_DIFFERS: Final = "mask-differs"  # in bits that change no token
KINDS: Final = (STRAYS, RAISES, MATCHER_RAISES, MASK_DIFFERS)


class Planted(ProcessorFactory):
    """Plants one fault per sequence on rank `rank` (None: on all), after `after` tokens."""

    def __init__(self, kind: str, after: int, rank: int | None = 1) -> None:
        from vllm.distributed.parallel_state import get_tp_group

        self._kind = kind
        self._after = after
        self._is_here = rank is None or get_tp_group().rank_in_group == rank
        if self._is_here:
            _patch()

    def create(self, _sequence: SequenceInfo) -> SequenceProcessor | None:
        if not self._is_here:
            return None
        if self._kind in {MATCHER_RAISES, MASK_DIFFERS}:
            _next_matcher.append((self._kind, self._after))
            return None
        return _State(self._kind, self._after)


class _State(SequenceProcessor):
    def __init__(self, kind: str, left: int) -> None:
        self._kind = kind
        self._left = left

    def accept(self, _token: int) -> None:
        self._left -= 1

    def apply(self, logits: Any) -> None:
        if self._left > 0:
            return
        if self._kind == RAISES:
            raise RuntimeError("planted")
        logits.neg_()


# Taken by the next matcher made in this process: a sequence's is made right after its processors.
_next_matcher: list[tuple[str, int]] = []
_marked: dict[int, int] = {}  # id of a matcher whose masks are to differ -> tokens left until then


def _patch() -> None:
    if getattr(prototypes.Prototypes, "is_planted", False):
        return
    prototypes.Prototypes.is_planted = True  # type: ignore[attr-defined]
    make, fill = prototypes.Prototypes.matcher, bitmasks.BitmaskBuffer.fill

    def matcher(self: Any, *args: Any) -> Any:
        made = make(self, *args)
        if _next_matcher:
            _plant(made, *_next_matcher.pop())
        return made

    def filled(self: Any, walks: Any) -> Any:
        bitmask, duration_ns = fill(self, walks)
        for walk in walks:
            if _marked.get(id(walk.matcher), 1) <= 0:
                bitmask[walk.row, -1] ^= 1
        return bitmask, duration_ns

    prototypes.Prototypes.matcher = matcher  # type: ignore[method-assign]
    bitmasks.BitmaskBuffer.fill = filled  # type: ignore[method-assign]


def _plant(matcher: Any, kind: str, after: int) -> None:
    accept = matcher.accept
    _marked[id(matcher)] = after

    def accepting(tokens: Any) -> bool:
        _marked[id(matcher)] -= len(tokens)
        if kind == MATCHER_RAISES and _marked[id(matcher)] <= 0:
            _marked.pop(id(matcher))
            raise RuntimeError("planted")
        return bool(accept(tokens))

    matcher.accept = accepting
    if kind == MATCHER_RAISES:
        return
