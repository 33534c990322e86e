"""The masks that a rank shares with the process of its matchers, as the rank's device reads them."""

import contextlib
import itertools
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch

from guided_engine.matchers.memory import SLOTS, SharedMemory
from guided_engine.ranks.mask_wait import DeviceWaits, Waits
from guided_engine.ranks.step import Masks
from guided_grammar.masks import FULL_MASK, Bitmask, forbid

_log = logging.getLogger("guided_engine")


class MaskMemory:
    """Gives out a slot once the device has read it; `waits` tells how long sampling waits for the masks."""

    def __init__(self, shared: SharedMemory) -> None:
        self.shared = shared
        self.waits = Waits()
        self._wait: list[Callable[[], None] | None] = [None] * SLOTS
        self._turn = 0
        if torch.cuda.is_available():
            self.waits = DeviceWaits(partial(torch.cuda.Event, enable_timing=True))
            # So that a device copies from it by itself. Else vLLM would first copy it, in the thread that
            # launches kernels.
            masks = shared.masks
            error = torch.cuda.cudart().cudaHostRegister(masks.ctypes.data, masks.nbytes, 0)
            if int(error):
                _log.warning("guidedmodel: masks are copied twice, their memory cannot be pinned: %s", error)
                with contextlib.suppress(RuntimeError):
                    torch.zeros(1, device="cuda")  # takes the error: CUDA blames the next kernel for it

    def next_slot(self) -> int:
        """Return the slot for the next masks, which the device does not read any more."""
        self._turn = (self._turn + 1) % SLOTS
        wait, self._wait[self._turn] = self._wait[self._turn], None
        if wait is not None:
            wait()
        return self._turn

    def filled(self, rows: int) -> Bitmask:
        """Return the first rows of the slot that was given out last."""
        return self.shared.slots[self._turn][:rows]

    def refusing(
        self, drafts: Mapping[str, Sequence[int]], learned: tuple[Sequence[str], Any], mask_rows: int
    ) -> Masks | None:
        """Return masks that forbid the first draft, and accept none, of the requests that have some.

        The other ranks may not have given them up yet: this one must not accept more than they do. `learned`
        are drafts by request that are -1 in `drafts`.
        """
        some = {name: each for name, each in drafts.items() if each}
        if not some:
            return None
        firsts = list(itertools.accumulate((mask_rows or 1 + len(each) for each in some.values()), initial=0))
        self.next_slot()  # a process that hangs may still write into the last one
        bitmask = self.filled(firsts[-1])
        bitmask[:] = FULL_MASK
        known = dict(zip(*learned, strict=False))
        for first, (name, each) in zip(firsts, some.items(), strict=False):
            draft = each[0] if each[0] >= 0 else next(iter(known.get(name, ())), -1)
            if draft >= 0:
                forbid(bitmask[first], draft)
        return Masks(list(some), bitmask, [0] * len(some))

    def handed_over(self, wait: Callable[[], None]) -> None:
        """Note that the slot is being copied to the device; `wait` returns once that is done."""
        self._wait[self._turn] = wait
