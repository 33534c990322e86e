"""What a fuzz target is, all of them by name, and their short run without a fuzzer."""

import contextlib
import importlib
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

NAMES: Final = ("schemas", "page", "watched")


@dataclass(frozen=True, slots=True)
class Target:
    """Something that reads what others send.

    Attributes
    ----------
    seeds
        Inputs made from real messages, to begin with.
    mutate
        Returns a changed copy of an input that often is still nearly right.
    run
        Takes one input; raises for what must not happen, and for nothing else.
    close
        Gives back what it holds.
    """

    seeds: Sequence[bytes]
    mutate: Callable[[bytes, random.Random], bytes]
    run: Callable[[bytes], None]
    close: Callable[[], None] = lambda: None


@contextlib.contextmanager
def made(name: str) -> Iterator[Target]:
    """Make a target, what `support.fuzz.NAME` tests, and close it."""
    target: Target = importlib.import_module(f"support.fuzz.{name}").target()
    with contextlib.closing(target):
        yield target


class FoundError(Exception):
    """An input with which a target did what it must not do."""


def replay(target: Target, seed: int, count: int) -> None:
    """Run the seeds and `count` inputs made from them.

    Raises
    ------
    FoundError
        The message shows the input.
    """
    chance = random.Random(seed)
    for data in target.seeds:
        _run(target, data)
    for _ in range(count):
        data = chance.choice(target.seeds)
        for _ in range(chance.choice((1, 1, 2, 3))):
            data = target.mutate(data, chance)
        _run(target, data)


def _run(target: Target, data: bytes) -> None:
    try:
        target.run(data)
    except Exception as error:
        raise FoundError(f"{type(error).__name__}: {error}\ninput: {data[:2000]!r}") from error
