"""Measures cells: all modes of a cell take turns, so that what disturbs the machine disturbs all of them."""

import contextlib
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec
import vocabulary

from rankbench.cells import Cell, Mode
from rankbench.clock import Costs
from rankbench.programs import Program
from rankbench.protocol import EngineSpec, Failed, Run, Served

_READERS_REST_S: Final = 1.2


class Record(msgspec.Struct):
    """One mode in one cell: what it served, paired by index with the other modes of the cell.

    `reason` says why there is nothing; `failed`, that there should be.
    """

    cell: str
    mode: str
    reason: str = ""
    failed: bool = False
    served: list[Served] = []

    @property
    def tokens_per_s(self) -> list[float]:
        """Return the tokens a second of each repetition."""
        return [served.tokens_per_s for served in self.served]

    @property
    def cpu_s_per_1000(self) -> list[float]:
        """Return the seconds of CPU per 1,000 tokens of each repetition."""
        return [served.cpu_s / served.tokens * 1000 for served in self.served]

    @property
    def thread_us(self) -> list[float]:
        """Return the CPU of a step in the thread that launches kernels, microseconds, of each repetition."""
        return [one.window.thread_s / one.window.steps * 1e6 for one in self.served if one.window]

    @property
    def gpu_busy(self) -> list[float]:
        """Return the share of time for which the virtual GPU was busy, of each repetition."""
        return [one.window.busy_s / one.window.wall_s for one in self.served if one.window]


@dataclass(frozen=True, slots=True)
class Folders:
    """Where things go. `profiles` None: none are made."""

    logs: Path
    profiles: Path | None


class Session:
    """Engines of cells that can share them, all alive at once; one serves while the others sleep."""

    def __init__(self, cells: Sequence[Cell], modes: Sequence[Mode], folders: Folders, costs: Costs) -> None:
        self._profiles = folders.profiles
        self._modes = modes
        self._stack = contextlib.ExitStack()
        first = cells[0]
        model = Path(tempfile.mkdtemp(prefix="rbc-", dir="/tmp"))
        self._stack.callback(shutil.rmtree, model, ignore_errors=True)
        heads = max(2, first.ranks)  # so many ranks can share it
        vocabulary.write_model(
            model,
            num_attention_heads=heads,
            num_key_value_heads=heads,
            hidden_size=32 * heads,
            head_dim=32,
        )
        specs = {
            mode.engine: EngineSpec(
                name=mode.engine,
                ours=mode.ours,
                is_async=mode.is_async,
                backend="xgrammar" if mode.backend in {"none", "auto"} else mode.backend,
                drafts=first.drafts,
                costs=costs,
                tensor_parallel=first.ranks,
                has_dry=mode.has_dry,
                max_batch=max(2, *(cell.batch for cell in cells)),
                model=str(model),
                sets=sorted({cell.schemas for cell in cells}),
            )
            for mode in modes
            if not all(mode.excluded(cell) for cell in cells)
        }
        self._programs: dict[str, Program] = {}
        try:
            started = time.monotonic()
            self._programs = {
                name: self._stack.enter_context(Program(spec, folders.logs)) for name, spec in specs.items()
            }
            for program in self._programs.values():
                program.wait_ready()
            _say(f"{len(specs)} engines started in {time.monotonic() - started:.0f} s")
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End all engines."""
        self._stack.close()

    def measure(self, cell: Cell, repetitions: int) -> list[Record]:
        """Measure one cell in all modes; the first round compiles, and does not count."""
        modes = self._modes
        found = {mode: Record(cell.name, mode.name, mode.excluded(cell)) for mode in modes}
        for repetition in range(repetitions + 1):
            # Another begins each time: what one leaves behind (caches, heat) hits all alike.
            turn = repetition % len(modes)
            for mode in (*modes[turn:], *modes[:turn]):
                if not found[mode].reason:
                    self._once(cell, mode, found[mode], counts=repetition > 0)
        return list(found.values())

    def _once(self, cell: Cell, mode: Mode, record: Record, *, counts: bool) -> None:
        run = Run(
            schemas=cell.schemas,
            batch=cell.batch,
            share=cell.share,
            backend=mode.backend,
            steps=cell.steps,
            method=cell.method,
            profile=str(self._profiles / f"{cell.name} {mode.name}.prof") if self._profiles else "",
        )
        if cell.ranks > 1:
            # vLLM's readers of shared memory poll for a second after their last message.
            time.sleep(_READERS_REST_S)
        started = time.monotonic()
        answer = self._programs[mode.engine].serve(run)
        if isinstance(answer, Failed):
            record.reason, record.failed, record.served = answer.reason, True, []
            _say(f"{cell.name}, {mode.name}: {answer.reason}")
        elif counts:
            record.served.append(answer)
            took_s = time.monotonic() - started
            _say(f"{cell.name}, {mode.name}: {answer.tokens_per_s:.0f} tok/s ({took_s:.1f} s)")


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def by_engines(cells: Iterable[Cell]) -> list[list[Cell]]:
    """Return cells in groups of those that share engines: each group is one session's."""
    groups: dict[tuple[object, ...], list[Cell]] = {}
    for cell in cells:
        groups.setdefault(cell.engine, []).append(cell)
    return list(groups.values())
