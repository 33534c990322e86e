"""What the heartbeats say about the engine: whether it runs, and whether it makes steps."""

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from guided_contract.heartbeat import Beat, Heartbeats, core_slot

FRESH_NS: Final = 20_000_000_000  # with the probe's period, a dead engine is unready within 30 s


@dataclass(frozen=True, slots=True)
class EngineState:
    """One reading: the engine cores' steps so far, and what stands still ("" while nothing does).

    `drafts`: the least and the most of how many draft tokens the cores' last steps asked for; None: no steps.
    """

    running: bool
    steps: int = 0
    stall: str = ""
    drafts: tuple[int, int] | None = None


def read(path: Path, *, workers: int, engines: int, now_ns: int) -> EngineState:
    """Return the engine's state by the heartbeats file at `path`.

    Parameters
    ----------
    workers
        Of each engine core.
    engines
        Number of engine cores.
    now_ns
        Now, by heartbeat.now_ns.
    """
    try:
        # Opened anew each time: a new engine start replaces the file.
        with contextlib.closing(Heartbeats(path, writable=False)) as beats:
            slots = [beats.read(slot) for slot in range(core_slot(engines, workers))]
    except OSError:
        return EngineState(running=False)
    firsts = [core_slot(engine, workers) for engine in range(engines)]
    states = [judge(slots[first], slots[first + 1 : first + 1 + workers], now_ns) for first in firsts]
    drafts = [slots[first].drafts for first in firsts if slots[first].steps]
    return EngineState(
        running=all(state.running for state in states),
        steps=sum(state.steps for state in states),
        stall=next((state.stall for state in states if state.stall), ""),
        drafts=(min(drafts), max(drafts)) if drafts else None,
    )


def read_workers(path: Path, workers: Iterable[int], now_ns: int) -> EngineState:
    """Return the state of the workers on a node that has no engine core; they run when all have beaten."""
    try:
        with contextlib.closing(Heartbeats(path, writable=False)) as beats:
            slots = {worker: beats.read(1 + worker) for worker in workers}
    except OSError:
        return EngineState(running=False)
    silent = (_silence(f"rank {worker}", beat, now_ns) for worker, beat in slots.items() if beat.pid)
    running = all(beat.pid for beat in slots.values())
    return EngineState(running, stall=next(filter(None, silent), ""))


def judge(core: Beat, ranks: list[Beat], now_ns: int) -> EngineState:
    """Return the state of one engine core, by its beats and its workers'."""
    if core.pid == 0:
        return EngineState(running=False)
    stalls = [_standstill(core, now_ns), _silence("the engine core", core, now_ns)]
    # A rank that has not written yet is starting; whether it is missing, its connection says.
    stalls += [_silence(f"rank {number}", beat, now_ns) for number, beat in enumerate(ranks) if beat.pid]
    return EngineState(running=True, steps=core.steps, stall=next(filter(None, stalls), ""))


def _standstill(core: Beat, now_ns: int) -> str:
    # An idle core's step time moves on with its beats, so that this counts from the first request.
    still_ns = now_ns - core.step_ns
    if core.busy == 0 or still_ns <= FRESH_NS:
        return ""
    return (
        f"the engine core has {core.busy} unfinished requests and has completed no step for "
        f"{still_ns // 10**9} s"
    )


def _silence(who: str, beat: Beat, now_ns: int) -> str:
    silent_ns = now_ns - max(beat.beat_ns, beat.step_ns)
    return f"{who} has not responded for {silent_ns // 10**9} s" if silent_ns > FRESH_NS else ""
