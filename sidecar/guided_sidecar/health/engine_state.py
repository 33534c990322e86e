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
    """Return the state of so many engine cores, each with so many workers; `now_ns` by heartbeat.now_ns."""
    beats = _beats(path, range(core_slot(engines, workers)))
    cores = [beats[at : at + 1 + workers] for at in range(0, len(beats), 1 + workers)]
    states = [judge(core, ranks, now_ns) for core, *ranks in cores]
    drafts = [core.drafts for core, *_ in cores if core.steps]
    return EngineState(
        running=bool(states) and all(state.running for state in states),
        steps=sum(state.steps for state in states),
        stall=next((state.stall for state in states if state.stall), ""),
        drafts=(min(drafts), max(drafts)) if drafts else None,
    )


def read_workers(path: Path, workers: Iterable[int], now_ns: int) -> EngineState:
    """Return the state of the workers on a node that has no engine core; they run when all have beaten."""
    beats = {number: beat for number in workers for beat in _beats(path, [1 + number])}
    stalls = (_silence(f"rank {number}", beat, now_ns) for number, beat in beats.items())
    running = bool(beats) and all(beat.pid for beat in beats.values())
    return EngineState(running, stall=next(filter(None, stalls), ""))


def judge(core: Beat, ranks: list[Beat], now_ns: int) -> EngineState:
    """Return the state of one engine core, by its beats and its workers'."""
    if core.pid == 0:
        return EngineState(running=False)
    stalls = [_standstill(core, now_ns), _silence("the engine core", core, now_ns)]
    stalls += [_silence(f"rank {number}", beat, now_ns) for number, beat in enumerate(ranks)]
    return EngineState(running=True, steps=core.steps, stall=next(filter(None, stalls), ""))


def _beats(path: Path, slots: Iterable[int]) -> list[Beat]:
    """Read slots of the file, which a new engine start replaces; none where there is no file."""
    try:
        with contextlib.closing(Heartbeats(path, writable=False)) as file:
            return [file.read(slot) for slot in slots]
    except OSError:
        return []


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
    # One that has not written yet is starting; whether it is missing, its connection says.
    silent_ns = now_ns - max(beat.beat_ns, beat.step_ns)
    return f"{who} has not responded for {silent_ns // 10**9} s" if beat.pid and silent_ns > FRESH_NS else ""
