"""`make bench-operator`; see benchmarks/README.md for its variables."""

import os
import platform
import sys
import time
from pathlib import Path

import commit
from devtools import cache, golang

from operatorbench import bars, records
from operatorbench.run import Wanted, measure

_IDLE_S = 200.0  # longer than the longest pause between two looks at a ready pod's page
_CHANGE_S = 30.0
_CHANGED_COUNT = 500
_RATE = "5"  # the bar's


def main() -> int:
    """Measure what is missing, print all, and return 1 where a bar is missed."""
    if cores := os.environ.get("CORES"):
        os.sched_setaffinity(0, {int(each) for each in cores.split(",")})
    out = Path(os.environ.get("OUT") or cache.root() / "bench-operator" / commit.name())
    out.mkdir(parents=True, exist_ok=True)
    runs = records.load(out / "records.json")
    golang.kubernetes()
    golang.player()
    left_s, began = 60 * float(os.environ.get("MINUTES") or "inf"), time.monotonic()
    for wanted in _plan():
        asked = wanted.count, wanted.revisions, wanted.foreign
        done = sum((run.count, run.revisions, run.foreign) == asked for run in runs)
        if done >= _reps():
            continue
        if time.monotonic() - began > left_s:
            print(f"bench-operator: out of time before {wanted.count:,} models; run it again")
            break
        print(f"bench-operator: {wanted.count:,} models", flush=True)
        runs.append(measure(wanted, _conditions()))
        records.save(out / "records.json", runs)
    lines = bars.report(runs)
    (out / "report.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))
    print(f"\nwritten to {out}")
    return 0 if all(bar.met for bar in bars.bars(runs)) else 1


def _plan() -> list[Wanted]:
    """Return the runs in the order in which they are done."""
    counts = [int(each) for each in (os.environ.get("N") or "500").split(",")]
    idle_s = float(os.environ.get("IDLE") or _IDLE_S)
    change_s = float(os.environ.get("CHANGE") or _CHANGE_S)
    revisions, foreign = (
        int(os.environ.get(name) or least) for name, least in (("REVISIONS", 1), ("FOREIGN", 0))
    )
    storm_s = float(os.environ.get("STORM") or 0)
    rates = [float(each) for each in (os.environ.get("RATE") or _RATE).split(",")]
    return [
        Wanted(
            count,
            revisions,
            foreign,
            storm_s,
            change_s,
            rates if count == _CHANGED_COUNT or os.environ.get("RATE") else (),
            idle_s,
            restart=True,
        )
        for count in counts
        for _ in range(_reps())
    ]


def _reps() -> int:
    return int(os.environ.get("REPS") or 1)


def _conditions() -> str:
    load = os.getloadavg()[0]
    return (
        f"{commit.name()}, {time.strftime('%Y-%m-%d %H:%M')}: "
        f"{len(os.sched_getaffinity(0))} of {os.cpu_count()} cores, load before {load:.1f}, "
        f"Kubernetes {golang.KUBERNETES}, Python {platform.python_version()}"
    )


if __name__ == "__main__":
    sys.exit(main())
