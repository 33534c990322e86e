"""The rows of a step: which of them a sequence's reasoning leaves free, and which its grammar masks."""

import itertools
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from guided_contract.errors import ErrorCode
from guided_engine.ranks.bitmasks import BitmaskBuffer, settle_dead_ends
from guided_engine.ranks.reasoning import AT_ONCE, Opening
from guided_engine.ranks.sequence import GuidedSequence, failure_of
from guided_engine.ranks.step import Masks
from guided_grammar.masks import FULL_MASK, forbid, words
from guided_grammar.walk import Walk

_log = logging.getLogger("guided_engine")


class Part(NamedTuple):
    """One sequence's rows, `rows` from `row` on.

    In the first `free` it reasons, and they allow all that it may say then; the others are its `walk`'s.
    """

    sequence: GuidedSequence
    row: int
    rows: int
    walk: Walk[Any] | None
    free: int = 0
    opening: Opening = AT_ONCE

    @property
    def acceptable(self) -> int:
        """Return how many leading drafts may be accepted."""
        before = self.opening.taken
        return before + (self.walk.valid if self.walk is not None and before == self.opening.grammar else 0)


class Limit(NamedTuple):
    """How many of a sequence's scheduled drafts may be accepted, whatever its grammar says of them.

    `banned`: the first draft of a sequence that was given up, which is not sampled in its place either: Model
    Runner V1 asks the rows alone. None: any token may be.
    """

    scheduled: int
    acceptable: int
    banned: int | None = None


def limit_of(sequence: GuidedSequence, scheduled: int) -> Limit:
    """Return the limit of a sequence with drafts that has processors, or was given up.

    Until all ranks have given it up, this one accepts no draft: the scheduler follows another rank, and has
    blocks for what that one accepts.
    """
    if not sequence.is_given_up:
        return Limit(scheduled, sequence.verifiable(scheduled))
    return Limit(scheduled, 0, sequence.drafts[0] if sequence.drafts else None)


def part_of(sequence: GuidedSequence, row: int, scheduled: int) -> Part | None:
    """Return a sequence's rows; None if none of them is to be masked.

    Parameters
    ----------
    row
        Its first row in the step's bitmask.
    scheduled
        Number of its drafts in this step, known or not; it has one row more.
    """
    matcher, drafts, rows = sequence.matcher, sequence.drafts, 1 + scheduled
    if matcher is None:
        return None
    if sequence.reasoning is None:
        return Part(sequence, row, rows, Walk(matcher, row, rows, drafts))
    opening = sequence.opening(drafts)
    if sequence.is_given_up:
        return None
    if opening.mask > len(drafts):  # it reasons on, and drafts that are not known may not be accepted
        return Part(sequence, row, rows, None, rows, opening)
    first = opening.grammar
    walk: Walk[Any] = Walk(matcher, row + first, rows - first, drafts[first:])
    return Part(sequence, row, rows, walk, opening.mask, opening)


def masks_of(parts: Sequence[Part], bitmasks: BitmaskBuffer) -> Masks:
    """Fill and return the masks of a step; a sequence that fails, or has no next token, is marked to end."""
    walks = [part.walk for part in parts if part.walk is not None]
    bitmask, duration_ns = bitmasks.fill(walks, parts[-1].row + parts[-1].rows)
    dead = {id(walk) for walk in settle_dead_ends(walks, bitmask)}
    for part in parts:
        sequence, walk = part.sequence, part.walk
        for reasoned in bitmask[part.row : part.row + part.free]:
            reasoned[:] = FULL_MASK
            for token in part.opening.held_back:
                forbid(reasoned, token)
        sequence.tally.forbidden += max(0, len(sequence.drafts) - part.acceptable)
        if walk is None:
            continue
        sequence.tally.count_fill(duration_ns * walk.rows)
        if walk.error is not None:
            _log.warning("guidedmodel: the matcher of %s failed: %s", sequence.request_id, walk.error)
            if walk.drafts:
                forbid(bitmask[walk.row], walk.drafts[0])  # as limit_of bans it from the next step on
            sequence.fail(failure_of(walk.error))
        elif walk.is_slow:
            sequence.fail(ErrorCode.SEQUENCE_SLOW)
        elif id(walk) in dead:
            sequence.fail(ErrorCode.SEQUENCE_DEAD_END)
    names = [part.sequence.request_id for part in parts]
    return Masks(names, bitmask, [part.acceptable for part in parts])


def invalid_drafts(
    sampling: Iterable[GuidedSequence], scheduled: Mapping[str, Sequence[int]], masks: Masks | None
) -> dict[str, int]:
    """Return how many of guided sequences' scheduled drafts are none or forbidden, where there are some."""
    acceptable = {} if masks is None else dict(zip(masks.request_ids, masks.acceptable, strict=True))
    return {
        name: count
        for sequence in sampling
        if sequence.matcher is not None and (drafts := scheduled.get(name := sequence.request_id))
        if (count := len(drafts) - acceptable.get(name, len(sequence.drafts))) > 0
    }


def with_limits(masks: Masks | None, limits: Mapping[str, Limit], vocab_size: int) -> Masks | None:
    """Have no draft accepted beyond its sequence's limit.

    Parameters
    ----------
    masks
        Of the step; None: none.
    limits
        By request.
    vocab_size
        Of the rank.
    """
    acceptable = list(masks.acceptable) if masks is not None else []
    request_ids = list(masks.request_ids) if masks is not None else []
    places = {request_id: index for index, request_id in enumerate(request_ids)}
    added: list[Limit] = []
    for request_id, limit in limits.items():
        if (index := places.get(request_id)) is not None:
            acceptable[index] = min(acceptable[index], limit.acceptable)
        elif limit.acceptable < limit.scheduled:
            request_ids.append(request_id)
            acceptable.append(limit.acceptable)
            added.append(limit)
    if not request_ids:
        return None
    firsts = list(itertools.accumulate([1 + limit.scheduled for limit in added], initial=0))
    rows = firsts[-1]
    free = np.full((rows, words(vocab_size)), FULL_MASK, np.int32)
    for first, limit in zip(firsts, added, strict=False):
        if limit.banned is not None:
            forbid(free[first], limit.banned)
    bitmask = free if masks is None else np.concatenate((masks.bitmask, free)) if rows else masks.bitmask
    return Masks(request_ids, bitmask, acceptable)
