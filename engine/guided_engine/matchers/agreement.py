"""Digests of what a rank knows of its sequences, by which the sidecar tells whether the ranks agree.

Every rank picks the same sequences in the same steps without asking: by how many tokens a sequence has
accepted, which all ranks know alike, never by a count of steps or a clock.
"""

import zlib
from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from guided_contract.records import Digest, Digests
from guided_grammar.masks import Bitmask

if TYPE_CHECKING:
    from guided_engine.matchers.sequence import GuidedSequence

# A record is one datagram, of 64 KiB at most. Clients name their requests, at any length.
_RECORD_BYTES: Final = 32 << 10
_DIGEST_BYTES: Final = 32  # without the name


@dataclass(slots=True)
class Progress:
    """How far a sequence's digests have come."""

    made: int = 0
    interval: int = -1  # the last one that had a digest
    covered: int = 0  # accepted tokens in digests so far
    offset: int = 0  # where its intervals begin


class Agreement:
    """Makes this rank's digests: of a sequence's first sampling step, then one per `every` tokens.

    `send` must not block.
    """

    def __init__(self, rank: int, every: int, send: Callable[[Digests], None]) -> None:
        self._rank = rank
        self._every = every
        self._send = send

    def compare(self, sampling: Iterable[tuple["GuidedSequence", Bitmask | None]]) -> None:
        """Send the digests that are due among this step's sampling sequences, each with its mask.

        The mask is [words], that of the next token, None where nothing masks the sequence. It tells the
        matcher's state; where only the masks after drafts differ, either no token does, or the next digest.
        """
        due = [_digest(sequence, mask) for sequence, mask in sampling if self._is_due(sequence)]
        while due:
            record, due = _first_record(due)
            self._send(Digests(rank=self._rank, digests=record))

    def _is_due(self, sequence: "GuidedSequence") -> bool:
        progress = sequence.progress
        if not progress.made:
            # Sequences that start together must not all have their digests in the same step.
            progress.offset = zlib.crc32(sequence.request_id.encode()) % self._every
        interval = (len(sequence.accepted) + progress.offset) // self._every
        # After preemption a sequence may go through positions again.
        if interval <= progress.interval:
            return False
        progress.interval = interval
        return True


def _first_record(due: list[Digest]) -> tuple[list[Digest], list[Digest]]:
    """Return as many digests as one record takes, at least one, and the rest."""
    left = _RECORD_BYTES
    for index, digest in enumerate(due):
        left -= _DIGEST_BYTES + 4 * len(digest.request_id)  # UTF-8
        if left < 0:
            return due[: index or 1], due[index or 1 :]
    return due, []


def _digest(sequence: "GuidedSequence", mask: Bitmask | None) -> Digest:
    progress, position = sequence.progress, len(sequence.accepted)
    fresh: Sequence[int] = sequence.accepted[min(progress.covered, position) :]
    known = zlib.crc32(array("q", fresh))
    made = Digest(
        request_id=sequence.request_id,
        number=progress.made,
        position=position,
        digest=known if mask is None else zlib.crc32(mask.data, known),
    )
    progress.made += 1
    progress.covered = position
    return made
