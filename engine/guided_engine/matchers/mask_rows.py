"""The rows of a step: which of them are left free, and which a sequence's grammar masks."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from guided_contract.errors import ErrorCode
from guided_engine.matchers.bitmasks import MaskFiller, settle_dead_ends
from guided_engine.matchers.reasoning import AT_ONCE, Opening
from guided_engine.matchers.sequence import GuidedSequence, failure_of
from guided_grammar.guided_rows import GuidedRows
from guided_grammar.masks import FULL_MASK, Bitmask, forbid

_log = logging.getLogger("guided_engine")


class Part(NamedTuple):
    """One sequence's rows, `rows` from `row` on.

    The first `free` of them allow all but what the opening holds back; the others are `guided`. `most`:
    how many leading drafts may be accepted, whatever its grammar says of them.
    """

    sequence: GuidedSequence
    row: int
    rows: int
    most: int
    guided: GuidedRows[Any] | None = None
    free: int = 0
    opening: Opening = AT_ONCE

    @property
    def acceptable(self) -> int:
        """Return how many leading drafts its grammar allows."""
        before = self.opening.taken
        if self.guided is None or before != self.opening.grammar:
            return before
        return before + self.guided.valid


def part_of(sequence: GuidedSequence, row: int, scheduled: int) -> Part | None:
    """Return a sequence's rows; None if none of them is to be masked, and no draft to be refused.

    Parameters
    ----------
    row
        Its first row in the step's bitmask.
    scheduled
        Number of its drafts in this step, known or not; it has one row more.
    """
    drafts, rows = sequence.drafts, 1 + scheduled
    most = sequence.verifiable(scheduled)
    matcher, number, is_given_up = sequence.matcher, sequence.number, sequence.is_given_up
    if matcher is not None and not is_given_up and not matcher.is_terminated():
        if sequence.reasoning is None:
            return Part(sequence, row, rows, most, GuidedRows(matcher, row, rows, drafts, number))
        opening = sequence.opening(drafts)
        if not sequence.is_given_up:
            if opening.mask > len(drafts):  # it reasons on, and drafts that are not known may not be accepted
                return Part(sequence, row, rows, most, free=rows, opening=opening)
            first = opening.grammar
            guided: GuidedRows[Any] = GuidedRows(matcher, row + first, rows - first, drafts[first:], number)
            return Part(sequence, row, rows, most, guided, opening.mask, opening)
    banned: Sequence[int] = ()
    if sequence.is_given_up:
        # Until all ranks have given it up, this one accepts no draft: the scheduler follows another rank, and
        # has blocks for what that one accepts. Nor is the first sampled in its place: Model Runner V1 asks
        # the rows alone.
        most, banned = 0, drafts[:1]
    if most == scheduled:
        return None
    free = Opening(rows, rows, len(drafts), frozenset(banned))
    return Part(sequence, row, rows, most, free=rows, opening=free)


def fill_masks(parts: Sequence[Part], filler: MaskFiller, bitmask: Bitmask) -> int:
    """Fill the masks of a step; a sequence that fails, or has no next token, is marked to end.

    Those rows of `bitmask` that are of no part are not set. Returns nanoseconds of a row.
    """
    batch = [part.guided for part in parts if part.guided is not None]
    duration_ns = filler.fill(batch, bitmask)
    dead = {id(guided) for guided in settle_dead_ends(batch, bitmask)}
    for part in parts:
        sequence, guided = part.sequence, part.guided
        if part.free:
            for free in bitmask[part.row : part.row + part.free]:
                free[:] = FULL_MASK
                for token in part.opening.held_back:
                    forbid(free, token)
        if guided is None:
            continue
        if guided.error is not None:
            _log.warning("guidedmodel: the matcher of %s failed: %s", sequence.request_id, guided.error)
            if guided.drafts:
                forbid(bitmask[guided.row], guided.drafts[0])  # as part_of bans it from the next step on
            sequence.fail(failure_of(guided.error))
        elif guided.is_slow:
            sequence.fail(ErrorCode.SEQUENCE_SLOW)
        elif id(guided) in dead:
            sequence.fail(ErrorCode.SEQUENCE_DEAD_END)
    return duration_ns


def count(parts: Iterable[Part], row_ns: int) -> None:
    """Count what the masks of a step forbid and took, `row_ns` a row, for the sequences' records."""
    for part in parts:
        tally = part.sequence.tally
        tally.forbidden += max(0, len(part.sequence.drafts) - part.acceptable)
        if part.guided is not None:
            tally.count_fill(row_ns * part.guided.rows)


def invalid_drafts(
    sampling: Iterable[GuidedSequence], scheduled: Mapping[str, Sequence[int]], parts: Sequence[Part]
) -> dict[str, int]:
    """Return how many of guided sequences' scheduled drafts are none or forbidden, where there are some."""
    if not scheduled:
        return {}
    acceptable = {part.sequence.request_id: part.acceptable for part in parts}
    return {
        name: count
        for sequence in sampling
        if sequence.matcher is not None and (drafts := scheduled.get(name := sequence.request_id))
        if (count := len(drafts) - acceptable.get(name, len(sequence.drafts))) > 0
    }
