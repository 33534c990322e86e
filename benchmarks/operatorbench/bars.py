"""The table of a run, and its bars."""

from collections.abc import Iterator, Sequence

from judged import Bar, table

from operatorbench.records import Changed, Run

_MIB = 1 << 20
_MODELS = 500  # each owns GPUs; of other numbers the bars of memory, changes and rest are not judged
_MOST_REQUESTS = 20
_MOST_MEMORY_BYTES = 256 * _MIB
_MOST_P99_S, _RATE = 1.0, 5
_MOST_IDLE = 0.02  # of a core
_OTHERS = "API server / etcd / player: CPU, s"


def bars(runs: Sequence[Run]) -> list[Bar]:
    """Judge what was measured; what was not has no bar."""
    counts = sorted({run.count for run in runs})
    return [bar for count in counts for bar in _of_count(runs, count)]


def _of_count(runs: Sequence[Run], count: int) -> Iterator[Bar]:
    chosen = [run for run in runs if run.count == count]
    if count == _MODELS:
        most = max(_peak(run) for run in chosen)
        yield Bar("500 models: memory at most 256 MiB", f"{most / _MIB:.0f} MiB", most <= _MOST_MEMORY_BYTES)
    if count >= 100:  # what it asks once counts too much with fewer
        each = max(_each(run) for run in chosen)
        asks = f"{count:,} models: at most {_MOST_REQUESTS:g} API requests each"
        yield Bar(asks, f"{each:.2f}", each <= _MOST_REQUESTS)
    for run in chosen:
        yield from _of_run(run)


def _of_run(run: Run) -> Iterator[Bar]:
    for changed in run.changes:
        if run.count == _MODELS and changed.rate == _RATE:
            asks = f"{run.count:,} models, {_RATE} changes a second: acted on in p99 < 1 s"
            found = f"{changed.p99:.2f} s, {changed.missed} of {changed.sent} missed"
            yield Bar(asks, found, changed.p99 < _MOST_P99_S and changed.missed == 0)
    if run.idle is not None and run.count == _MODELS:
        share = run.idle.cpu_s / run.idle.seconds
        yield Bar(
            f"{run.count:,} models: idle below {_MOST_IDLE:.0%} of a core, no write",
            f"{share:.2%}, {_writes(run.idle.requests)} writes in {run.idle.seconds:.0f} s",
            share < _MOST_IDLE and _writes(run.idle.requests) == 0,
        )
    if run.restarted is not None:
        found = f"{run.restarted.writes} writes"
        yield Bar(f"{run.count:,} models: a restart writes nothing", found, run.restarted.writes == 0)
    if run.storm is not None:
        storm = run.storm
        asks = f"{run.count:,} models, 403 for {storm.seconds:.0f} s: no status write, no event"
        found = f"{storm.status_writes} and {storm.events}, in {storm.refused} refusals"
        yield Bar(asks, found, storm.status_writes == storm.events == 0)


def _each(run: Run) -> float:
    return sum(run.converged.requests.values()) / run.count


def _peak(run: Run) -> int:
    others = (run.restarted, run.storm)
    return max(run.converged.peak_bytes, *(each.peak_bytes for each in others if each is not None))


def _writes(requests: dict[str, int]) -> int:
    return sum(n for what, n in requests.items() if what.split()[0] not in ("get", "list", "watch"))


def report(runs: Sequence[Run]) -> list[str]:
    """Return the run's page."""
    return [
        *_head("models", "children, s", "Ready, s", "CPU, s", "memory, MiB", "requests each", _OTHERS),
        *(_row(run) for run in sorted(runs, key=lambda run: run.count)),
        "",
        *_head(
            "models",
            "revisions each",
            "other ConfigMaps",
            "idle, of a core",
            "restart: CPU, s",
            "memory, MiB",
            "requests",
            "after 403: memory, MiB",
            "acts again after, s",
        ),
        *(_second_row(run) for run in sorted(runs, key=lambda run: run.count)),
        "",
        *_head(
            "models",
            "changes a second",
            "acted on: p50, s",
            "p99",
            "most",
            "missed",
            "CPU each, ms",
            "CPU, s",
        ),
        *(_changed_row(run, changed) for run in runs for changed in run.changes),
        "",
        *(line for run in runs for line in _verbs(run)),
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
        f"| {run.count:,} | {found.children_s:.1f} | {found.ready_s:.1f} "
        f"| {found.cpu_s['operator']:.1f} | {found.peak_bytes / _MIB:.0f} | {_each(run):.2f} | {others} |"
    )


def _second_row(run: Run) -> str:
    idle, restarted, storm = run.idle, run.restarted, run.storm
    cells = [
        str(run.revisions),
        str(run.foreign),
        f"{idle.cpu_s / idle.seconds:.2%}" if idle else "",
        f"{restarted.cpu_s:.1f}" if restarted else "",
        f"{restarted.peak_bytes / _MIB:.0f}" if restarted else "",
        str(sum(restarted.requests.values())) if restarted else "",
        f"{storm.peak_bytes / _MIB:.0f}" if storm else "",
        f"{storm.back_s:.1f}" if storm else "",
    ]
    return f"| {run.count:,} | {' | '.join(cells)} |"


def _changed_row(run: Run, changed: Changed) -> str:
    cpu = ", ".join(f"{name} {used_s:.0f}" for name, used_s in changed.cpu_s.items())
    return (
        f"| {run.count:,} | {changed.rate:g} | {changed.p50:.3f} | {changed.p99:.3f} "
        f"| {changed.max:.3f} | {changed.missed} of {changed.sent} "
        f"| {1000 * changed.cpu_s['operator'] / changed.sent:.1f} | {cpu}, in {changed.seconds:.0f} s |"
    )


def _verbs(run: Run) -> Iterator[str]:
    yield f"{run.count:,} models: {_listed(run.converged.requests)}  "
    for changed in run.changes:
        yield f"... {changed.rate:g} changes a second: {_listed(changed.requests)}  "


def _listed(requests: dict[str, int]) -> str:
    return ", ".join(f"{count} {what}" for what, count in requests.items())
