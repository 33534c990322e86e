"""The virtual GPU as the plugin's masks see it: what of torch's device API they use, and nothing else.

vLLM copies a mask that is not pinned into memory that is, in the thread that launches kernels. A virtual GPU
must charge that to those who cause it, and to nobody else: what the plugin asks to be pinned counts as
pinned.
"""

import time
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt
import torch

_pinned: list[tuple[int, int]] = []  # where such memory begins, and ends


class UnsupportedError(AttributeError):
    """The plugin uses something of a device that this one lacks."""


class Event:
    """A moment at which the host asked for it: the virtual GPU's own moments are the clock's to know."""

    def __init__(self, *, enable_timing: bool = False) -> None:
        self.enable_timing = enable_timing
        self.at_s: float | None = None

    def record(self) -> None:
        """Take the moment."""
        self.at_s = time.perf_counter()

    def query(self) -> bool:
        """Return True, as torch does for an event that nobody recorded, too."""
        return True

    def elapsed_time(self, later: "Event") -> float:
        """Return the milliseconds from here to another; RuntimeError where torch has one."""
        if self.at_s is None or later.at_s is None:
            raise RuntimeError("both events must be recorded before calculating elapsed time")
        return 1000 * (later.at_s - self.at_s)


class VirtualDevice:
    """Stands for `torch.cuda`."""

    Event = Event

    def is_available(self) -> bool:
        """Return True."""
        return True

    def cudart(self) -> "VirtualDevice":
        """Return what pins memory."""
        return self

    def cudaHostRegister(self, address: int, size: int, _flags: int) -> int:  # noqa: N802 - CUDA's name
        """Pin memory; return no error."""
        _pinned.append((address, address + size))
        return 0

    def __getattr__(self, name: str) -> NoReturn:
        raise UnsupportedError(f"the benchmark's virtual GPU has no torch.cuda.{name}: add it to {__file__}")


class Torch:
    """torch, but for a device that is available."""

    cuda = VirtualDevice()

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)


def watch() -> None:
    """Have the plugin's masks, where they are allocated, see this device."""
    from guided_engine.ranks import mask_memory  # noqa: PLC0415 - in workers alone

    vars(mask_memory)["torch"] = Torch()


def is_pinned(array: npt.NDArray[np.int32]) -> bool:
    """Tell whether an array lies in memory that was to be pinned."""
    address = array.ctypes.data
    return any(begin <= address < end for begin, end in _pinned)
