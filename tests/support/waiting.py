"""Waits for what other processes do, with a deadline."""

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def eventually(
    probe: Callable[[], T],
    timeout_s: float = 30.0,
    what: str | Callable[[], object] = "",
    *,
    poll_s: float = 0.05,
) -> T:
    """Return the first true value of `probe`, or fail with its last value, and `what` was waited for."""
    deadline = time.monotonic() + timeout_s
    while True:
        found = probe()
        if found:
            return found
        if time.monotonic() > deadline:
            missing = what() if callable(what) else what or probe
            raise AssertionError(f"not within {timeout_s:g} s: {missing}; last seen: {found!r}")
        time.sleep(poll_s)


async def until(condition: Callable[[], object], timeout_s: float = 10.0) -> None:
    """Wait for a condition; TimeoutError at the deadline."""
    async with asyncio.timeout(timeout_s):
        while not condition():  # noqa: ASYNC110 - other processes change it
            await asyncio.sleep(0.005)
