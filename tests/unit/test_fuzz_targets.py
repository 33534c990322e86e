"""What strangers send does no harm: each target of `make fuzz`, by a fixed seed and without the fuzzer."""

import logging

import pytest

from support.fuzz.targets import TARGETS, replay


@pytest.mark.parametrize("name", TARGETS)
def test_what_a_stranger_sends_is_read_or_refused(name: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)  # what is wrong with each input is told at length
    replay(TARGETS[name], seed=2, count=200)
