"""Every target of `make fuzz`, a while, by a fixed seed and without the fuzzer."""

import logging
from collections.abc import Iterator

import pytest

from support.fuzz.target import NAMES, FoundError, Target, made, replay

SEED = 2
COUNT = 700


@pytest.fixture(autouse=True)
def silence() -> Iterator[None]:
    """What is wrong with each input is told at length."""
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("name", NAMES)
def test_a_target_holds(name: str) -> None:
    with made(name) as target:
        replay(target, SEED, COUNT)


def test_a_find_shows_its_input() -> None:
    def never_nine(data: bytes) -> None:
        assert b"9" not in data

    target = Target([b"8"], lambda _data, _chance: b"a 9", never_nine)
    with pytest.raises(FoundError, match="b'a 9'"):
        replay(target, SEED, 1)
