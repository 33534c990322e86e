"""Applies the processors of a step to their rows of the logits."""

from collections.abc import Sequence
from typing import Any

import torch

from guided_engine.processors.interface import SequenceProcessor

# A sequence's processors, its drafts, and its first row and the row after its last
Job = tuple[Sequence[SequenceProcessor], Sequence[int], tuple[int, int]]


def apply_to_rows(jobs: Sequence[Job], logits: Any) -> list[int]:
    """Change `logits` [rows, vocabulary] in place; return which jobs failed, their rows as they were before.

    A row sees the state advanced by the drafts before it. Rows after the known drafts stay untouched.
    """
    before = [logits[first:end].clone() for _, _, (first, end) in jobs]
    failed = {index for index, job in enumerate(jobs) if not _applied(job, logits)}
    if jobs:
        # One wait for the device, however many sequences.
        is_nan = torch.stack([logits[first:end].isnan().any() for _, _, (first, end) in jobs])
        failed.update(index for index, nan in enumerate(is_nan.tolist()) if nan)
    for index in failed:
        first, end = jobs[index][2]
        logits[first:end] = before[index]
    return sorted(failed)


def _applied(job: Job, logits: Any) -> bool:
    processors, drafts, (first, end) = job
    try:
        for processor in processors:
            state = processor.fork() if drafts else processor
            for offset, row in enumerate(range(first, min(end, first + 1 + len(drafts)))):
                if offset:
                    state.accept(drafts[offset - 1])
                state.apply(logits[row])
    except Exception:  # noqa: BLE001 - the user's code; only its sequence pays
        return False
    return True
