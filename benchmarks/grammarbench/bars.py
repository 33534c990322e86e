"""The table of a run, and its bars."""

import math
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from judged import Bar, table

from grammarbench.corpus import Entry
from grammarbench.records import Record, Records, Usage

STAGES: Final = ("cold", "memory")
_TIMES_UPSTREAM: Final = 1.5
_MOST_GROWTH_BYTES: Final = 64 << 20
_CORES: Final = 4
_WHOLE: Final = 0.99
_BURST_S: Final = 5.0


def percentile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that so large a share of all does not exceed."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def bars(records: Records) -> list[Bar]:
    """Judge a run."""
    return [
        _to_upstream(records),
        _middle_to_upstream(records),
        _cold(records, "Auto, no proof", 50),
        _cold(records, "Auto", 100),
        _hop(records),
        _whole_texts(records),
        *_usage(records.usage),
        _burst(records.burst),
    ]


def report(records: Records, entries: Sequence[Entry], conditions: Sequence[str]) -> list[str]:
    """Return the run's page."""
    return [
        *conditions,
        "",
        *_rows(records),
        "",
        *_outcomes(records),
        "",
        *_slowest(records, entries),
        "",
        *table(bars(records)),
    ]


def _times(record: Record | None, stage: str) -> list[float]:
    return (
        [1e3 * one.took_s for one in record.samples if one.stage == stage and one.is_prepared]
        if record
        else []
    )


def _begun(record: Record | None) -> list[float]:
    """Return the milliseconds until the engine might begin with what was new."""
    cold = [one for one in record.samples if one.stage == "cold" and one.is_prepared] if record else []
    return [1e3 * (one.begun_s or one.took_s) for one in cold]


def _rows(records: Records) -> Iterator[str]:
    yield "| milliseconds, p50 / p95 / p99 | cold: ranks have it | cold: proven | from memory |"
    yield "|---|---|---|---|"
    for name, record in records.modes.items():
        cells = []
        for times in (_begun(record), *(_times(record, stage) for stage in STAGES)):
            shares = [f"{percentile(times, share):.3g}" for share in (0.5, 0.95, 0.99)] if times else []
            cells.append(" / ".join(shares))
        yield f"| {name} | {' | '.join(cells)} |"


def _outcomes(records: Records) -> Iterator[str]:
    for name, record in records.modes.items():
        found = Counter(one.outcome for one in record.samples if one.stage == "cold")
        yield f"{name}: {', '.join(f'{count} {outcome}' for outcome, count in found.most_common())}  "


def _slowest(records: Records, entries: Sequence[Entry]) -> Iterator[str]:
    for name, record in records.modes.items():
        cold = [one for one in record.samples if one.stage == "cold"]
        slow = sorted(range(len(cold)), key=lambda index: -cold[index].took_s)[:8]
        found = [f"{1e3 * cold[i].took_s:.0f} ({cold[i].source} {i}, {len(entries[i].text)} B)" for i in slow]
        yield f"{name}, slowest cold: {', '.join(found)}  "


def _to_upstream(records: Records) -> Bar:
    asks = "cold p99 with Auto <= 1/10 of upstream's"
    ours, theirs = (_times(records.modes.get(name), "cold") for name in ("Auto", "upstream"))
    if not ours or not theirs:
        return Bar(asks, "not measured", None)
    one, other = percentile(ours, 0.99), percentile(theirs, 0.99)
    return Bar(asks, f"{one:.0f} ms to {other:.0f} ms", one <= other / 10)


def _middle_to_upstream(records: Records) -> Bar:
    asks = f"cold p50 with Auto, until ranks have it, <= {_TIMES_UPSTREAM:g} times upstream's compile"
    ours, theirs = (_begun(records.modes.get(name)) for name in ("Auto", "upstream"))
    if not ours or not theirs:
        return Bar(asks, "not measured", None)
    one, other = percentile(ours, 0.5), percentile(theirs, 0.5)
    return Bar(asks, f"{one:.1f} ms to {other:.1f} ms", one <= _TIMES_UPSTREAM * other)


def _cold(records: Records, mode: str, most_ms: float) -> Bar:
    asks = f"{mode}: cold p99 <= {most_ms:g} ms on {_CORES} idle cores"
    times = _times(records.modes.get(mode), "cold")
    if not times:
        return Bar(asks, "not measured", None)
    found = percentile(times, 0.99)
    enough = (os.cpu_count() or 1) >= _CORES
    return Bar(asks, f"{found:.1f} ms", found <= most_ms if enough else None)


def _hop(records: Records) -> Bar:
    asks = "a cached grammar: p50 <= 1 ms"
    times = _times(records.modes.get("Auto"), "memory")
    if not times:
        return Bar(asks, "not measured", None)
    found = percentile(times, 0.5)
    return Bar(asks, f"{found:.2f} ms", found <= 1)


def _whole_texts(records: Records) -> Bar:
    asks = f"Auto: a walk of the proof ends in a whole text for >= {_WHOLE:.0%} of what is served"
    record = records.modes.get("Auto")
    ended = {name: count for name, count in record.proofs.items() if name != "refused"} if record else {}
    if not sum(ended.values()):
        return Bar(asks, "not measured", None)
    share = ended.get("finished", 0) / sum(ended.values())
    return Bar(asks, f"{share:.1%}", share >= _WHOLE)


def _burst(burst_s: list[float] | None) -> Bar:
    asks = f"100 new schemas of 24 clients at once: p99 <= {_BURST_S:g} s"
    if burst_s is None:
        return Bar(asks, "not measured", None)
    found = percentile(burst_s, 0.99)
    return Bar(asks, f"{found:.2f} s", found <= _BURST_S)


def _usage(usage: Usage | None) -> Iterator[Bar]:
    if usage is None:
        yield Bar("100,000 unique schemas leave memory within bounds", "not measured", None)
        return
    grown = usage.memory_after - usage.memory_before
    yield Bar(
        f"{usage.schemas:,} unique schemas: memory grows by at most {_MOST_GROWTH_BYTES >> 20} MiB",
        f"{grown / 2**20:.0f} MiB, from {usage.memory_before >> 20} MiB, in {usage.took_s:.0f} s",
        grown <= _MOST_GROWTH_BYTES and not usage.refused,
    )
