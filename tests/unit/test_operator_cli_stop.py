"""Signals to `guidedmodel run`, each at the worst moment."""

import itertools
import signal
import sys
import time

from guided_operator.cli.local.run import signals_kept


def wait_with_a_signal(at: int) -> tuple[bool, int]:
    """Wait, with a SIGTERM at the `at`-th call or return within; return whether it was heard."""
    passed = 0

    def profile(*_: object) -> None:
        nonlocal passed
        passed += 1
        if passed == at:
            signal.raise_signal(signal.SIGTERM)

    with signals_kept() as heard:
        sys.setprofile(profile)
        try:
            time.sleep(0.0)
            len(heard)
        finally:
            sys.setprofile(None)
        return bool(heard), passed


def test_a_signal_at_any_moment_of_the_wait_is_heard() -> None:
    # Of threading.Event, whose lock a handler cannot get where the wait has it, 22 moments of 37 never end.
    for at in itertools.count(1):
        heard, passed = wait_with_a_signal(at)
        if at > passed:
            break
        assert heard
    assert at > 3


def test_every_request_is_kept_and_handlers_come_back() -> None:
    before = signal.getsignal(signal.SIGHUP)
    with signals_kept() as heard:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.raise_signal(number)
    assert heard == [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
    assert signal.getsignal(signal.SIGHUP) == before
