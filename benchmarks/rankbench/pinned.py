"""Pinned memory without a device: what the plugin asks to be pinned counts as pinned.

vLLM copies a mask that is not pinned into memory that is, in the thread that launches kernels. A virtual GPU
must charge that to those who cause it, and to nobody else.
"""

import types
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

_pinned: list[Any] = []


class _Torch:
    """torch, but for a device that is available and pins what it is asked to."""

    cuda = types.SimpleNamespace(is_available=lambda: True)

    def empty(self, *size: Any, pin_memory: bool = False, **more: Any) -> Any:
        memory = torch.empty(*size, **more)
        if pin_memory:
            _pinned.append(memory)
        return memory

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)


def watch() -> None:
    """Have the plugin's masks, where they are allocated, see a device."""
    from guided_engine.ranks import bitmasks  # noqa: PLC0415 - loads both grammar libraries

    vars(bitmasks)["torch"] = _Torch()


def is_pinned(array: npt.NDArray[np.int32]) -> bool:
    """Tell whether an array lies in memory that was to be pinned."""
    address = array.ctypes.data
    return any(m.data_ptr() <= address < m.data_ptr() + m.nbytes for m in _pinned if m.nbytes)
