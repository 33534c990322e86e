"""What is said of a compile that is late, by what happened to it, in every order; time is played."""

import itertools

import pytest

from guided_sidecar.grammar.pool.pool import Progress

LIMIT_S = 10.0


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def played(events: tuple[str, ...]) -> tuple[Progress, Clock]:
    clock = Clock()
    progress = Progress(clock=clock)
    for event in events:
        match event:
            case "a worker gets it":
                progress.start()
            case "its worker dies":
                progress.died(with_template=False)
            case "half of its time":
                clock.now += LIMIT_S / 2
    return progress, clock


BEFORE = ("a worker gets it", "its worker dies", "half of its time")


@pytest.mark.parametrize("events", [*itertools.product(BEFORE, repeat=3), ()], ids="; ".join)
def test_it_is_to_blame_if_the_worker_that_has_it_had_it_for_half_of_the_limit(
    events: tuple[str, ...],
) -> None:
    progress, _ = played(events)
    # The judge knows no clock: it counts what passed since a worker got it and still has it.
    had: float | None = None
    for event in events:
        if event == "a worker gets it":
            had = 0.0
        elif event == "its worker dies":
            had = None
        elif had is not None:
            had += LIMIT_S / 2
    told = progress.too_late(LIMIT_S)
    if had:
        assert (told.code, told.message) == (
            "grammar_compile_timeout",
            "the grammar did not compile within 10 s",
        )
    else:
        crashed = "its worker dies" in events
        words = "a grammar worker crashed" if crashed else "all grammar workers were busy for 10 s"
        assert told.code == "grammar_service_unavailable"
        assert told.message.startswith(words)
        assert told.retry_after_s
    assert progress.deaths == events.count("its worker dies")


def test_how_long_its_worker_takes_to_end_changes_nothing() -> None:
    """Who waited, the trace and the metrics are told the same."""
    progress, clock = played(("a worker gets it",))
    progress.ended = told = progress.too_late(LIMIT_S)
    clock.now += LIMIT_S
    assert progress.too_late(LIMIT_S) is told
    assert told.code == "grammar_service_unavailable"
