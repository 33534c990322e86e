"""Every target of `make fuzz`, a while, by a fixed seed and without the fuzzer; and what it would find."""

import logging
from collections.abc import Iterator

import msgspec
import pytest

from guided_contract import config, records, wire
from guided_operator.watch.cache import Cache
from guided_sidecar.grammar.prepare import jobs
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


# A fault that was there, by target: module, name, what it was.
FAULTS = {
    "peers": (wire, "MALFORMED", (msgspec.MsgspecError, UnicodeDecodeError)),
    "datagrams": (records, "MALFORMED", msgspec.MsgspecError),
    "schemas": (jobs, "taken", lambda _kind, spec, _most_bytes: spec),
    "files": (config, "MALFORMED", msgspec.MsgspecError),
    "watched": (Cache, "_put", lambda _self, kind, item: kind.project(item)),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_target_finds_the_fault_that_was_there(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(*FAULTS[name])
    with made(name) as target, pytest.raises(FoundError):
        replay(target, SEED, 8 * COUNT)  # it ends with the first that is found


def test_a_find_shows_its_input() -> None:
    def never_nine(data: bytes) -> None:
        assert b"9" not in data

    target = Target([b"8"], lambda _data, _chance: b"a 9", never_nine)
    with pytest.raises(FoundError, match="b'a 9'"):
        replay(target, SEED, 1)
