"""What strangers send does no harm: each target of `make fuzz`, by a fixed seed and without the fuzzer."""

import logging
from collections.abc import Iterator

import pytest

from support.fuzz.targets import TARGETS, replay

SEED = 2
COUNT = 200


@pytest.fixture(autouse=True)
def silence() -> Iterator[None]:
    """What is wrong with each input is told at length."""
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("name", TARGETS)
def test_what_a_stranger_sends_is_read_or_refused(name: str) -> None:
    replay(TARGETS[name], SEED, COUNT)
