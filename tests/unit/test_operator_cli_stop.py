"""Signals to `guidedmodel run`, each at the worst moment."""

import itertools
import signal
import sys

from guided_operator.cli.local.run import Stop


def wait_with_a_signal(at: int) -> tuple[bool, int]:
    """Wait, with a SIGTERM at the `at`-th call or return within; return whether it was heard."""
    passed = 0

    def profile(*_: object) -> None:
        nonlocal passed
        passed += 1
        if passed == at:
            signal.raise_signal(signal.SIGTERM)

    with Stop() as stop:
        sys.setprofile(profile)
        try:
            stop.wait(0.0)
        finally:
            sys.setprofile(None)
        return stop.is_asked(), passed


def test_a_signal_at_any_moment_of_the_wait_is_heard() -> None:
    # Of threading.Event, whose lock a handler cannot get where the wait has it, 22 moments of 37 never end.
    for at in itertools.count(1):
        heard, passed = wait_with_a_signal(at)
        if at > passed:
            break
        assert heard
    assert at > 3


def test_the_second_request_hurries() -> None:
    with Stop() as stop:
        assert (stop.is_asked(), stop.is_hurried()) == (False, False)
        signal.raise_signal(signal.SIGINT)
        assert (stop.wait(60.0), stop.is_hurried()) == (True, False)
        signal.raise_signal(signal.SIGHUP)
        assert stop.is_hurried()
