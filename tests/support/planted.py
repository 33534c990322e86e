"""Faults planted on one rank alone, by way of logits processors that a request names; for tests.

A processor is the user's code on every rank, so it can do to one rank what a broken machine would. What it
does to a matcher goes with the request to the matchers' process, which vLLM's plugin here has changed.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import torch

from guided_engine.matchers.bitmasks import MaskFiller
from guided_engine.matchers.matching import Matching
from guided_engine.processors.interface import (
    Context,
    DenseFactory,
    Params,
    SequenceInfo,
    SequenceProcessor,
)
from guided_engine.ranks.rank_guide import RankGuide

STRAYS: Final = "strays"  # samples other tokens than the other ranks, all allowed
MASK_DIFFERS: Final = "mask-differs"  # in a bit that changes no token
RAISES: Final = "raises"  # its processor raises
MATCHER_RAISES: Final = "matcher-raises"
REJECTS: Final = "rejects"  # its matcher rejects what was sampled
DEAD_END: Final = "dead-end"  # its mask allows nothing
DIFFERING: Final = (STRAYS, MASK_DIFFERS)
CODES: Final = {
    RAISES: "sequence_processor_failed",
    MATCHER_RAISES: "sequence_matcher_failed",
    REJECTS: "sequence_token_rejected",
    DEAD_END: "sequence_dead_end",
}


class PlantedParams(Params):
    kind: str
    after: int
    rank: int | None = 1


class Planted(DenseFactory[PlantedParams]):
    """Plants one fault per sequence on rank `rank` (None: on all), after `after` tokens."""

    Params = PlantedParams

    def __init__(self, params: PlantedParams, context: Context) -> None:
        from vllm.distributed.parallel_state import get_tp_group

        super().__init__(params, context)
        self._is_here = params.rank is None or get_tp_group().rank_in_group == params.rank

    def create(self, _sequence: SequenceInfo[PlantedParams]) -> SequenceProcessor | None:
        if not self._is_here:
            return None
        kind, after = self.params.kind, self.params.after
        if kind in {STRAYS, RAISES}:
            return _State(kind, after)
        _next_matcher.append((kind, after))
        return None

    def apply(self, logits: Any, _rows: Sequence[str]) -> None:
        logits.copy_(torch.where(logits.isinf(), logits, -logits))


class _State(SequenceProcessor):
    def __init__(self, kind: str, left: int) -> None:
        self._kind = kind
        self._left = left

    def accept(self, tokens: Sequence[int]) -> None:
        self._left -= len(tokens)

    def prepare(self, ahead: Sequence[int]) -> list[str | None]:
        if self._left <= 0 and self._kind == RAISES:
            raise RuntimeError("planted")
        return [self._kind if self._left <= 0 else None] * (1 + len(ahead))


# Of the request that arrives: it is told to the matchers right after its processors are made.
_next_matcher: list[tuple[str, int]] = []


def entry_point(folder: Path) -> None:
    """Make `install` a plugin of vLLM, for processes that have a folder on PYTHONPATH."""
    info = folder / "planted-0.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: planted\nVersion: 0.0\n")
    (info / "entry_points.txt").write_text("[vllm.general_plugins]\nplanted = support.planted:install\n")


def install() -> None:
    """Change what tells a request to the matchers, and what makes its matcher and fills its masks."""
    if getattr(RankGuide, "is_planted", False):
        return
    RankGuide.is_planted = True  # type: ignore[attr-defined]
    arrived, make, fill = RankGuide._arrived, Matching._made, MaskFiller.fill

    def arriving(self: Any, arrival: Any) -> Any:
        made = arrived(self, arrival)
        if _next_matcher:
            kind, after = _next_matcher.pop()
            made.ticket = msgspec.structs.replace(made.ticket, reasoning_arguments={"planted": [kind, after]})
        return made

    def matcher(self: Any, arrive: Any) -> Any:
        sequence = make(self, arrive)
        if sequence.matcher is not None and (told := arrive.ticket.reasoning_arguments.get("planted")):
            _plant(sequence.matcher, *told)
        return sequence

    def filled(self: Any, walks: Any, bitmask: Any) -> Any:
        duration_ns = fill(self, walks, bitmask)
        for walk in walks:
            kind = getattr(walk.matcher, "planted", "")
            if kind == MASK_DIFFERS:
                bitmask[walk.row, -1] ^= 1
            elif kind == DEAD_END:
                bitmask[walk.row] = 0
        return duration_ns

    RankGuide._arrived = arriving  # type: ignore[method-assign]
    Matching._made = matcher  # type: ignore[method-assign]
    MaskFiller.fill = filled  # type: ignore[method-assign]


def _plant(matcher: Any, kind: str, after: int) -> None:
    accept, left = matcher.accept, after

    def accepting(tokens: Any) -> bool:
        nonlocal left
        left -= len(tokens)
        if left <= 0:
            matcher.planted = kind
            if kind == MATCHER_RAISES:
                raise RuntimeError("planted")
        return bool(accept(tokens)) and not (left <= 0 and kind == REJECTS)

    matcher.accept = accepting
