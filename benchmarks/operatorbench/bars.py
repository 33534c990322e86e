"""The table of a run, and its bars."""

from collections.abc import Iterator, Sequence
from statistics import fmean

from judged import Bar, table

from operatorbench.records import Run

_MIB = 1 << 20
_MOST_RATIO = 1.3
_MOST_MEMORY_BYTES = 400 * _MIB
_MOST_P99_S = 1.0
_MOST_IDLE = {1000: 0.01, 5000: 0.05}  # of a core
_OTHERS = "API server / etcd / player: CPU, s"
_CHANGE = "a change acted on, s: p50 / p99 / max"


def bars(runs: Sequence[Run]) -> list[Bar]:
    """Judge what was measured; what was not has no bar."""
    counts = sorted({run.count for run in runs})
    return [bar for count in counts for bar in _of_count(runs, count)]


def _of_count(runs: Sequence[Run], count: int) -> Iterator[Bar]:
    ours, theirs = (
        [run for run in runs if run.count == count and run.contestant == name] for name in ("ours", "rival")
    )
    if ours and theirs:
        yield _ratio(ours, theirs, count)
        yield _requests(ours, theirs, count)
    if ours and count == 5000:
        most = max(_peak(run) for run in ours)
        yield Bar(
            "5,000 models: memory at most 400 MiB", f"{most / _MIB:.0f} MiB", most <= _MOST_MEMORY_BYTES
        )
    for run in ours:
        yield from _of_run(run)


def _ratio(ours: Sequence[Run], theirs: Sequence[Run], count: int) -> Bar:
    one, other = (fmean(run.converged.ready_s for run in runs) for runs in (ours, theirs))
    asks = f"{count:,} models: all Ready in at most {_MOST_RATIO} x the rival's time"
    return Bar(asks, f"{one:.1f} s to {other:.1f} s, {one / other:.2f} x", one <= _MOST_RATIO * other)


def _requests(ours: Sequence[Run], theirs: Sequence[Run], count: int) -> Bar:
    one, other = (
        fmean(sum(run.converged.requests.values()) / count for run in runs) for runs in (ours, theirs)
    )
    return Bar(f"{count:,} models: no more API requests each", f"{one:.2f} to {other:.2f}", one <= other)


def _of_run(run: Run) -> Iterator[Bar]:
    if run.changed is not None:
        asks = f"{run.count:,} models, 50 changes a second: acted on in p99 < 1 s"
        found = f"{run.changed.p99:.2f} s, {run.changed.missed} of {run.changed.sent} missed"
        yield Bar(asks, found, run.changed.p99 < _MOST_P99_S and run.changed.missed == 0)
    if run.idle is not None and run.count in _MOST_IDLE:
        share, most = run.idle.cpu_s / run.idle.seconds, _MOST_IDLE[run.count]
        yield Bar(
            f"{run.count:,} models: idle below {most:.0%} of a core, no write",
            f"{share:.2%}, {_writes(run.idle.requests)} writes in {run.idle.seconds:.0f} s",
            share < most and _writes(run.idle.requests) == 0,
        )
    if run.restarted is not None:
        found = f"{run.restarted.writes} writes"
        yield Bar(f"{run.count:,} models: a restart writes nothing", found, run.restarted.writes == 0)


def _each(run: Run) -> float:
    return sum(run.converged.requests.values()) / run.count


def _peak(run: Run) -> int:
    return max(run.converged.peak_bytes, run.restarted.peak_bytes if run.restarted else 0)


def _writes(requests: dict[str, int]) -> int:
    return sum(n for what, n in requests.items() if what.split()[0] not in ("get", "list", "watch"))


def report(runs: Sequence[Run]) -> list[str]:
    """Return the run's page."""
    return [
        *_head("models", "", "children, s", "Ready, s", "CPU, s", "memory, MiB", "requests each", _OTHERS),
        *(_row(run) for run in sorted(runs, key=lambda run: run.count)),
        "",
        *_head("models", "", "idle, of a core", "restart: CPU, s", "memory, MiB", "requests", _CHANGE),
        *(_second_row(run) for run in sorted(runs, key=lambda run: run.count)),
        "",
        *(_verbs(run) for run in runs),
        "",
        *sorted({run.conditions for run in runs}),
        "",
        *table(bars(runs)),
    ]


def _head(*cells: str) -> tuple[str, str]:
    return f"| {' | '.join(cells)} |", "|---" * len(cells) + "|"


def _row(run: Run) -> str:
    found = run.converged
    others = " / ".join(f"{found.cpu_s[name]:.1f}" for name in ("API server", "etcd", "player"))
    return (
        f"| {run.count:,} | {run.contestant} | {found.children_s:.1f} | {found.ready_s:.1f} "
        f"| {found.cpu_s[run.contestant]:.1f} | {found.peak_bytes / _MIB:.0f} | {_each(run):.2f} | {others} |"
    )


def _second_row(run: Run) -> str:
    idle, restarted, changed = run.idle, run.restarted, run.changed
    cells = [
        f"{idle.cpu_s / idle.seconds:.2%}" if idle else "",
        f"{restarted.cpu_s:.1f}" if restarted else "",
        f"{restarted.peak_bytes / _MIB:.0f}" if restarted else "",
        str(sum(restarted.requests.values())) if restarted else "",
        f"{changed.p50:.3f} / {changed.p99:.3f} / {changed.max:.3f}" if changed else "",
    ]
    return f"| {run.count:,} | {run.contestant} | {' | '.join(cells)} |"


def _verbs(run: Run) -> str:
    said = f"{run.count:,} {run.contestant}: {_listed(run.converged.requests)}  "
    if (changed := run.changed) is None:
        return said
    cpu = ", ".join(f"{name} {used_s:.1f}" for name, used_s in changed.cpu_s.items())
    return f"{said}\n... {changed.seconds:.0f} s of changes: {_listed(changed.requests)}; CPU, s: {cpu}  "


def _listed(requests: dict[str, int]) -> str:
    return ", ".join(f"{count} {what}" for what, count in requests.items())
