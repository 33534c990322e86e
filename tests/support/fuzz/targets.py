"""All targets by name; each is made when it is asked for, and imported then."""

import contextlib
import importlib
from collections.abc import Iterator
from typing import Final

from support.fuzz.target import Target

NAMES: Final = ("peers", "datagrams", "otlp", "schemas", "workers", "entries", "files")


@contextlib.contextmanager
def made(name: str) -> Iterator[Target]:
    """Make a target, what `support.fuzz.NAME` tests, and close it."""
    target: Target = importlib.import_module(f"support.fuzz.{name}").target()
    try:
        yield target
    finally:
        target.close()
