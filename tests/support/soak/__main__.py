"""`make soak`: drawn traffic on a pod for a while, every answer judged, until one is wrong or time is up.

What was sent is remembered in the cache, by the product's sources and this configuration: a run goes on where
the last one stopped. Ends with 1 at a wrong answer, a desync or a leak, and says how to see it again.

DURATION=30m   how long; with N alone, no end by time
N=100000       how many requests in all runs together
SEED=7         one batch again (N=500: so many of that seed); with REQUEST=3 one of its requests, alone
RUNNER=V1      vLLM's model runner; V2 takes fifty times as long on a CPU
TENSOR=2       tensor parallelism
"""

import os
import re
import sys
import time
from pathlib import Path
from typing import Any, NoReturn, get_args

import msgspec
from devtools import cache

from support.pod import ROOT, Pod, start_pod
from support.soak import memory, session
from support.soak.requests import drawn
from support.soak.session import Session
from support.soak.tally import Tally

BATCH = 100
MOST_FAULTS = 20
LEAK_MIB = 400
WARM_S = 120.0  # what the first batches load and cache is no leak
_SOURCES = ("engine", "sidecar", "operator", "tests/support/soak")
_UNITS_S = {"s": 1, "m": 60, "h": 3600}


class Progress(msgspec.Struct):
    """What all runs of one configuration have shown. `next_seed`: the first batch not yet sent."""

    next_seed: int = 0
    seconds: float = 0.0
    desyncs: int = 0
    compared: int = 0
    tally: Tally = msgspec.field(default_factory=Tally)

    @classmethod
    def of(cls, file: Path) -> "Progress":
        return msgspec.json.decode(file.read_bytes(), type=cls) if file.exists() else cls()

    def save(self, file: Path) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        new = file.with_suffix(".new")
        new.write_bytes(msgspec.json.encode(self))
        new.replace(file)


class Options(msgspec.Struct, frozen=True):
    """What the environment asks for. `seed` and `request`: what to send again, alone."""

    runner: session.Runner
    tensor: int
    duration_s: float
    requests: int | None
    seed: int | None
    request: int | None

    @classmethod
    def of_environment(cls) -> "Options":
        def number(name: str) -> int | None:
            text = os.environ.get(name)
            return int(text) if text else None

        runner: Any = os.environ.get("RUNNER") or "V1"
        if runner not in get_args(session.Runner):
            refuse(f"RUNNER is V1 or V2, not {runner}")
        wanted, duration = number("N"), os.environ.get("DURATION")
        endless = wanted is not None and not duration
        duration_s = float("inf") if endless else seconds(duration or "30m")
        tensor = number("TENSOR") or 2
        return cls(runner, tensor, duration_s, wanted, number("SEED"), number("REQUEST"))

    @property
    def state(self) -> Path:
        """The file that remembers what was sent."""
        key = cache.key([ROOT / source for source in _SOURCES])
        return cache.root() / f"soak-{self.runner}-tp{self.tensor}-{key}.json"


def main() -> int:
    options = Options.of_environment()
    say(f"starting a pod: {options.runner}, {options.tensor} ranks, a draft model, async scheduling")
    pod = start_pod(
        session.manifest(tensor=options.tensor), v2=options.runner == "V2", configured=session.CONFIGURED
    )
    try:
        if options.seed is not None:
            return again(Session(pod), options.seed, options.requests or BATCH, options.request)
        return soak(pod, options)
    finally:
        pod.stop()


def soak(pod: Pod, options: Options) -> int:
    """Send batch after batch until time is up or enough was sent; return the exit status."""
    progress = Progress.of(options.state)
    soaked = Session(pod, progress.tally)
    say(f"{options.state} remembers {progress.tally.requests} requests; next is seed {progress.next_seed}")
    begin, desyncs, compared = time.monotonic(), progress.desyncs, progress.compared
    wanted = options.requests if options.requests is not None else sys.maxsize
    before: memory.Resident = {}
    while (passed_s := time.monotonic() - begin) < options.duration_s and progress.tally.requests < wanted:
        if not before and passed_s > min(WARM_S, options.duration_s / 4):
            before = memory.resident(pod)
        batch(soaked, progress)
        progress.desyncs = desyncs + soaked.desyncs()
        progress.compared = compared + soaked.compared()
        progress.save(options.state)
        if len(progress.tally.faults) >= MOST_FAULTS:
            break
    return finish(progress, memory.growth(before, memory.resident(pod)))


def batch(soaked: Session, progress: Progress) -> None:
    """Send the next seed's requests; print how it stands, and each new fault."""
    known, tokens = len(progress.tally.faults), progress.tally.tokens
    began = time.monotonic()
    soaked.run(progress.next_seed, drawn(progress.next_seed, BATCH))
    took_s = time.monotonic() - began
    progress.seconds += took_s
    tally = progress.tally
    say(
        f"seed {progress.next_seed}: {tally.requests} requests, {tally.valid} of {tally.whole + tally.cut} "
        f"sequences valid, {sum(tally.refused.values())} refused, {tally.aborted} aborted, "
        f"{(tally.tokens - tokens) / took_s:.0f} tok/s"
    )
    for fault in tally.faults[known:]:
        say(f"FAULT {fault}")
    progress.next_seed += 1


def again(soaked: Session, seed: int, count: int, number: int | None) -> int:
    """Send one seed's requests, or one of them, and show what came back; return the exit status."""
    requests = drawn(seed, count if number is None else number + 1)
    began = time.monotonic()
    outcomes = soaked.run(seed, requests if number is None else [requests[number]])
    if number is not None:
        say(msgspec.json.format(msgspec.json.encode(outcomes[0])).decode())
    took_s = time.monotonic() - began
    shown = Progress(desyncs=soaked.desyncs(), compared=soaked.compared(), seconds=took_s, tally=soaked.tally)
    return finish(shown, [])


def finish(progress: Progress, grown: list[tuple[str, int, int]]) -> int:
    """Print the table; return the exit status."""
    tally = progress.tally
    leaks = [name for name, before, after in grown if after - before > LEAK_MIB]
    rows = [
        *tally.rows(),
        ("desyncs", f"{progress.desyncs} in {progress.compared} digests compared"),
        ("tokens/s", f"{tally.tokens / progress.seconds:.0f}" if progress.seconds else "-"),
        *((f"memory of {name}", f"{before} -> {after} MiB") for name, before, after in grown),
    ]
    width = max(len(name) for name, _ in rows)
    say("\n".join(f"{name:<{width}}  {value}" for name, value in rows))
    for fault in tally.faults:
        say(f"FAULT {fault}")
    if tally.faults:
        say("`make soak SEED=n` sends a batch again, `make soak SEED=n REQUEST=n` one of its requests")
    if leaks:
        say(f"grew by more than {LEAK_MIB} MiB: {', '.join(leaks)}")
    return int(bool(tally.faults or progress.desyncs or leaks))


def seconds(text: str) -> float:
    """Return a duration as 90s, 30m or 2h in seconds."""
    found = re.fullmatch(r"(\d+)([smh])", text)
    if found is None:
        refuse(f"DURATION is as 90s, 30m or 2h, not {text}")
    return float(found[1]) * _UNITS_S[found[2]]


def refuse(message: str) -> NoReturn:
    sys.stderr.write(f"soak: {message}\n")
    sys.exit(2)


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
