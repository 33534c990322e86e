"""`make chaos-grammar`: faults of every kind against a real pod's grammar service, under a benign load.

Prints what was done and what it showed; ends with 1 when a promise was broken.

FAULTS=1000    strikes against grammar workers
KILLS=50       kills of the grammar service
SEED=0         which worker is struck how
PHASES=...     some of workers, service, budget, surroundings; default: all
RATE=5         benign requests a second
QUIET=30       seconds of benign load alone, to compare with
"""

import asyncio
import os
import signal
import sys
from typing import Any, Final

import httpx
import msgspec

from support.chaos import phases, surroundings
from support.chaos.benign import TIMEOUT_S, Load
from support.chaos.staging import Report, Setting
from support.engine import ONE_THREAD
from support.pod import Pod, sample, start_pod

DEADLINE_S: Final = 6.0
_PHASES: Final = ("workers", "service", "budget", "surroundings")
# More deaths in so short a time than any phase but `budget` makes.
RESTART: Final = {"maxAttempts": 25, "baseDelay": "1ms", "maxDelay": "20ms", "resetAfter": "3s"}


class Options(msgspec.Struct, frozen=True):
    """What the environment asks for."""

    faults: int
    kills: int
    seed: int
    phases: list[str]
    rate: float
    quiet_s: float

    @classmethod
    def of_environment(cls) -> "Options":
        def text(name: str, default: object) -> str:
            return os.environ.get(name) or str(default)

        return cls(
            faults=int(text("FAULTS", 1000)),
            kills=int(text("KILLS", 50)),
            seed=int(text("SEED", 0)),
            phases=text("PHASES", ",".join(_PHASES)).split(","),
            rate=float(text("RATE", 5)),
            quiet_s=float(text("QUIET", 30)),
        )


def manifest() -> dict[str, Any]:
    """Return the sample on one rank, with a short deadline, little memory and a small budget."""
    compile_ = {"timeout": f"{DEADLINE_S:g}s", "memory": "128Mi", "workers": 2}
    return sample(
        parallelism={"tensor": 1},
        guidedDecoding={"compile": compile_},
        sidecar={"restart": RESTART},
    )


def main() -> int:
    options = Options.of_environment()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # in order: nothing of the pod may stay
    say("starting a pod: one rank, its sidecar, and the API server before them")
    with surroundings.small_file_systems() as environment:
        pod = start_pod(manifest(), env={**ONE_THREAD, **(environment or {})})
        try:
            reports = asyncio.run(run(pod, options, has_small_file_systems=environment is not None))
        finally:
            pod.stop()
    return finish(reports)


async def run(pod: Pod, options: Options, *, has_small_file_systems: bool) -> list[Report]:
    """Run the phases one after the other."""
    limits = httpx.Limits(max_connections=200)
    async with httpx.AsyncClient(base_url=pod.url, timeout=TIMEOUT_S, limits=limits) as client:
        setting = Setting(
            pod, client, Load(client, options.rate), DEADLINE_S, options.seed, has_small_file_systems
        )
        await phases.warm(setting)
        report, quiet_p99_s = await phases.quiet(setting, options.quiet_s)
        reports = [shown(report)]
        if "workers" in options.phases:
            reports.append(shown(await phases.workers(setting, options.faults, quiet_p99_s)))
        if "service" in options.phases:
            reports.append(shown(await phases.service(setting, options.kills)))
        if "budget" in options.phases:
            reports.append(shown(await phases.budget(setting)))
        if "surroundings" in options.phases:
            reports.append(shown(await surroundings.surroundings(setting)))
    return reports


def shown(report: Report) -> Report:
    """Print a report as soon as it is there, and return it."""
    width = max(len(name) for name, _ in report.rows)
    say(f"\n{report.name}\n" + "\n".join(f"  {name:<{width}}  {value}" for name, value in report.rows))
    for broken in [*report.broken, *report.late][:20]:
        say(f"  BROKEN {broken}")
    return report


def finish(reports: list[Report]) -> int:
    """Say whether every promise was kept; return the exit status."""
    broken = sum(len(report.broken) + len(report.late) for report in reports)
    say(f"\n{broken} promises broken" if broken else "\nevery promise was kept")
    return int(bool(broken))


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
