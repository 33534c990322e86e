"""`make soak`: drawn traffic on a pod for a while, every answer judged, until one is wrong or time is up.

Ends with 1 at a wrong answer or a desync, and says how to see it again.

DURATION=30m   how long
SEED=7         one batch alone (N=500: so many of that seed); with REQUEST=3 one of its requests
RUNNER=V1      vLLM's model runner; V2 takes fifty times as long on a CPU
TENSOR=2       tensor parallelism
"""

import itertools
import os
import sys
import time
from typing import Final

import msgspec

from support.pod import start_pod
from support.soak import session
from support.soak.requests import drawn
from support.soak.session import Session

BATCH: Final = 100
_UNITS_S: Final = {"s": 1, "m": 60, "h": 3600}


def main() -> int:
    tensor, runner = int(os.environ.get("TENSOR") or 2), os.environ.get("RUNNER") or "V1"
    seed, request = os.environ.get("SEED"), os.environ.get("REQUEST")
    say(f"starting a pod: {runner}, {tensor} ranks, a draft model, async scheduling")
    pod = start_pod(session.manifest(tensor=tensor), v2=runner == "V2", configured=session.CONFIGURED)
    try:
        soaked = Session(pod)
        if seed is None:
            soak(soaked, seconds(os.environ.get("DURATION") or "30m"))
        else:
            again(soaked, int(seed), None if request is None else int(request))
        return finish(soaked)
    finally:
        pod.stop()


def soak(soaked: Session, duration_s: float) -> None:
    """Send batch after batch until an answer is wrong or time is up."""
    until = time.monotonic() + duration_s
    for seed in itertools.count():
        soaked.run(seed, drawn(seed, BATCH))
        say(f"seed {seed}: {dict(soaked.counts)}")
        if soaked.faults or time.monotonic() > until:
            return


def again(soaked: Session, seed: int, number: int | None) -> None:
    """Send one seed's requests, or one of them, and show what came back of that one."""
    if number is None:
        soaked.run(seed, drawn(seed, int(os.environ.get("N") or BATCH)))
        return
    [outcome] = soaked.run(seed, [drawn(seed, number + 1)[number]])
    say(msgspec.json.format(msgspec.json.encode(outcome)).decode())


def finish(soaked: Session) -> int:
    """Print what was found; return the exit status."""
    desyncs = soaked.desyncs()
    say(f"{desyncs} desyncs in {soaked.compared()} digests compared")
    for name, value in soaked.counts.items():
        say(f"{name:<40}{value}")
    for fault in soaked.faults:
        say(f"FAULT, again by `make soak` with {fault}")
    return int(bool(soaked.faults or desyncs))


def seconds(text: str) -> float:
    """Return a duration as 90s, 30m or 2h in seconds."""
    return float(text[:-1]) * _UNITS_S[text[-1]]


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
