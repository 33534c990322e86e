"""A thread that must live goes on after what it raises; of tasks, test_contract.py says the same."""

import itertools
from pathlib import Path

from guided_contract.heartbeat import Heartbeats
from guided_engine.pulse import Pulse
from support.waiting import eventually


def test_a_heartbeat_that_fails_is_not_the_last(tmp_path: Path) -> None:
    calls = itertools.count()

    def busy() -> int:
        if not next(calls):
            raise RecursionError
        return 1

    beats = Heartbeats.create(tmp_path / "heartbeats")
    pulse = Pulse(tmp_path / "heartbeats", 0, busy)
    pulse.start()
    try:
        eventually(lambda: beats.read(0).busy, what="the next is written")
    finally:
        pulse.stop()
        beats.close()
