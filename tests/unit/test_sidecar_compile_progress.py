"""Why a compile was ended, by what happened to it, in every order; time is played."""

import itertools

import pytest

from guided_sidecar.grammar.pool.compile_progress import CompileProgress

LIMIT_S = 10.0


class Clock:
    now = 0.0
    cpu_s = 3.0  # of the worker, from earlier compiles

    def __call__(self) -> float:
        return self.now


def played(events: tuple[str, ...]) -> tuple[CompileProgress, Clock]:
    clock = Clock()
    progress = CompileProgress(LIMIT_S, clock)
    for event in events:
        match event:
            case "a worker gets it":
                progress.start(lambda: clock.cpu_s)
            case "its worker dies":
                progress.deaths += 1
                progress.queue()
            case "it makes room":
                progress.queue()
            case "half of its time":
                clock.now += LIMIT_S / 2
            case "all of its time":
                clock.now += LIMIT_S
    return progress, clock


BEFORE = ("a worker gets it", "its worker dies", "it makes room", "half of its time", "all of its time")


@pytest.mark.parametrize("events", [*itertools.product(BEFORE, repeat=3), ()], ids="; ".join)
def test_its_own_deadline_counts_from_the_worker_that_has_it(events: tuple[str, ...]) -> None:
    progress, _ = played(events)
    # The judge knows no clock: it counts what passed since a worker got it and still has it.
    had: float | None = None
    for event in events:
        if event == "a worker gets it":
            had = 0.0
        elif event in {"its worker dies", "it makes room"}:
            had = None
        elif had is not None:
            had += LIMIT_S / (2 if event.startswith("half") else 1)
    assert progress.late_after_s == (LIMIT_S if had is not None and had >= LIMIT_S else None)
    assert progress.ran_for(LIMIT_S / 2) == (had is not None and had >= LIMIT_S / 2)
    assert progress.deaths == events.count("its worker dies")


@pytest.mark.parametrize("events", [(), ("a worker gets it",), ("a worker gets it", "its worker dies")])
@pytest.mark.parametrize("limit_s", [None, 1.0])
def test_who_waited_says_why_it_was_ended(events: tuple[str, ...], limit_s: float | None) -> None:
    progress, _ = played(events)
    progress.give_up(limit_s)
    assert progress.late_after_s == limit_s


@pytest.mark.parametrize("used_s", [0.05, 1.0])
def test_how_long_its_worker_takes_to_end_changes_nothing(used_s: float) -> None:
    """Who waited, the trace and the metrics are told the same."""
    progress, clock = played(("a worker gets it",))
    clock.now, clock.cpu_s = clock.now + 1, clock.cpu_s + used_s
    progress.give_up(1.0)
    told = progress.too_late(1.0)
    clock.now, clock.cpu_s = clock.now + LIMIT_S, clock.cpu_s + LIMIT_S
    progress.stop()
    assert progress.late_after_s == 1.0
    assert (progress.too_late(1.0).code, progress.too_late(1.0).message) == (told.code, told.message)
    assert told.code == ("grammar_compile_timeout" if used_s == 1.0 else "grammar_service_unavailable")


def test_both_run_out_in_the_same_moment() -> None:
    """A client that leaves as the compile's own time ends takes nothing from that."""
    progress, _ = played(("a worker gets it", "all of its time"))
    progress.give_up(None)
    assert progress.late_after_s == LIMIT_S


@pytest.mark.parametrize("ended", [False, True])
@pytest.mark.parametrize(
    ("had_s", "cpu_s", "words"),
    [
        (10.0, 5.0, ""),
        (6.0, 1.1, ""),
        (10.0, 0.06, "the grammar worker was given 0.06 s of CPU time within 10 s"),
        (4.0, 4.0, "all grammar workers were busy for 10 s"),
        (None, 0.0, "all grammar workers were busy for 10 s"),
    ],
)
def test_a_compile_is_blamed_for_its_time_only_if_it_had_a_worker_and_a_cpu(
    had_s: float | None,
    cpu_s: float,
    words: str,
    ended: bool,  # noqa: FBT001 - a case
) -> None:
    """On two cores that two ranks keep busy, a worker once waited 10 s for 20 ms of CPU time."""
    progress, clock = played(() if had_s is None else ("a worker gets it",))
    clock.now += had_s or 0.0
    clock.cpu_s += cpu_s
    if ended and had_s is not None:
        progress.stop()
        clock.cpu_s = 0.0  # nothing is known of a process that has gone
    assert progress.excuse(LIMIT_S) == words
