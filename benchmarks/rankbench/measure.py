"""Measures cells: all modes of a cell take turns, so that what disturbs the machine disturbs all of them."""

import contextlib
import json
import shutil
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
from devtools import tinymodel

from guided_sidecar.grammar.schema import additional_properties
from rankbench import corpora, drafting, masks
from rankbench.cells import CHANGING_TOKENS, Cell, Mode
from rankbench.clock import FLAT, Costs
from rankbench.documents import SEQUENCES, Corpus
from rankbench.masks import ReferenceMatcher, References
from rankbench.programs import Program
from rankbench.protocol import EngineSpec, Failed, Run, Served
from rankbench.records import Record
from rankbench.tasks import Tasks

_READERS_REST_S: Final = 1.2
_MOST_COMPARED: Final = 24  # mask rows per cell and mode


@dataclass(slots=True)
class _Found:
    served: list[Served] = field(default_factory=list)
    untimed: int = 0  # batches before those that count
    reason: str = ""
    failed: bool = False


@dataclass(frozen=True, slots=True)
class Folders:
    """Where things are. `profiles` None: none are made; `suite_tests` None: no JSON-Schema-Test-Suite."""

    model: Path
    logs: Path
    profiles: Path | None
    suite_tests: Path | None


class Session:
    """Engines of cells that can share them, all alive at once; one serves while the others sleep."""

    def __init__(
        self, cells: Sequence[Cell], modes: Sequence[Mode], folders: Folders, costs: Costs = FLAT
    ) -> None:
        self._profiles = folders.profiles
        self._modes = modes
        self._stack = contextlib.ExitStack()
        first = cells[0]
        self._corpora = {
            name: Corpus.load(name, corpora.folder(name, folders.suite_tests))
            for name in sorted({cell.schemas for cell in cells if not cell.is_real})
        }
        folder = Path(tempfile.mkdtemp(prefix="rbc-", dir="/tmp"))
        self._stack.callback(shutil.rmtree, folder, ignore_errors=True)
        for corpus in self._corpora.values():
            corpus.save(folder)
        model, draft_model = folder / "model", Path()
        if first.is_real:
            model, draft_model = (tinymodel.models() / name for name in ("tiny", "tiny-draft"))
        else:
            corpora.write_model(folders.model, model, first.ranks)
        batch = max(batch for cell in cells for batch in cell.phases)
        specs = {
            mode.engine: EngineSpec(
                name=("cpu-" if first.is_real else "") + mode.engine,
                ours=mode.ours,
                is_async=mode.is_async,
                backend="xgrammar" if mode.backend in {"none", "auto"} else mode.backend,
                device="cpu" if first.is_real else "virtual",
                **drafting.of(first, mode, max(batch, 2)),
                draft_model=str(draft_model) if first.is_real else "",
                costs=costs,
                tensor_parallel=first.ranks,
                executor=mode.executor,
                has_dry=mode.has_dry,
                max_batch=max(batch, 2),
                model=str(model),
                folder="",
                corpora=str(folder),
                sets=[Tasks.name] if first.is_real else list(self._corpora),
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

    def measure(self, cell: Cell, repetitions: int, references: References) -> list[Record]:
        """Measure one cell in all modes; the first round compiles, and does not count."""
        modes = self._modes
        found = {mode.name: _Found() for mode in modes}
        for mode in modes:
            if mode.drafting == "auto":
                self._let_choose(cell, mode, found[mode.name])
        for repetition in range(repetitions + 1):
            # Another begins each time: what one leaves behind (caches, heat) hits all alike.
            turn = repetition % len(modes)
            for mode in (*modes[turn:], *modes[:turn]):
                self._once(cell, mode, found[mode.name], counts=repetition > 0)
        return [self._record(cell, mode, found[mode.name], references) for mode in modes]

    def _once(self, cell: Cell, mode: Mode, found: _Found, *, counts: bool) -> None:
        if not found.reason:
            found.reason = mode.excluded(cell)
        if found.reason:
            return
        profile = str(self._profiles / f"{cell.name} {mode.name}.prof") if self._profiles else ""
        run = _run(cell, mode, cell.phases, profile)
        if cell.ranks > 1:
            # vLLM's readers of shared memory poll for a second after their last message.
            time.sleep(_READERS_REST_S)
        started = time.monotonic()
        answer = self._programs[mode.engine].serve(run)
        if isinstance(answer, Failed):
            found.reason, found.failed = answer.reason, True
            _say(f"{cell.name}, {mode.name}: {answer.reason}")
        elif counts:
            found.served.append(answer)
            speed, busy = answer.tokens / answer.wall_s, ""
            if answer.ranks:
                rank = answer.ranks[0]
                speed, busy = rank.tokens / rank.wall_s, f", busy {rank.busy_s / rank.wall_s:.3f}"
            _say(f"{cell.name}, {mode.name}: {speed:.0f} tok/s{busy} ({time.monotonic() - started:.1f} s)")

    def _let_choose(self, cell: Cell, mode: Mode, found: _Found) -> None:
        """Serve batches that do not count until what an engine chooses by load is settled."""
        for batch in sorted(set(cell.phases)):
            chosen = drafting.settled(partial(self._untimed, cell, mode, batch))
            if isinstance(chosen, Failed):
                found.reason, found.failed = chosen.reason, True
                break
            found.untimed += chosen.untimed

    def _untimed(self, cell: Cell, mode: Mode, batch: int) -> Served | Failed:
        answer = self._programs[mode.engine].serve(_run(cell, mode, (batch,)))
        if isinstance(answer, Served):
            rank = answer.ranks[0]
            took_ms = rank.wall_s / rank.steps * 1e3
            _say(f"{cell.name}, {mode.name}, not counted: drafts {rank.asked}, steps of {took_ms:.1f} ms")
        return answer

    def _record(self, cell: Cell, mode: Mode, found: _Found, references: References) -> Record:
        if found.reason:
            return Record(cell=cell.name, mode=mode.name, reason=found.reason, failed=found.failed)
        if cell.is_real or cell.is_changing:
            return _real(cell, mode, found)
        corpus = self._corpora[cell.schemas]
        first = [served.ranks[0] for served in found.served]
        rows = [row for served in found.served for rank in served.ranks for row in rank.rows]
        chosen = found.served[0].backends
        # xgrammar would take minutes to compile these bounds; the contract tests compare their masks.
        is_endless = cell.schemas == "bounded" and mode.backend == "xgrammar"

        def fresh(document: int) -> ReferenceMatcher | None:
            schema = corpus.schema(document % SEQUENCES)
            if mode.backend == "auto":
                # What it then means with either library: docs/how-a-grammar-is-served.md.
                schema = json.dumps(additional_properties.close(json.loads(schema)))
            backend = chosen[document % SEQUENCES]
            return None if is_endless else references.matcher(backend, schema)

        step = max(1, len(rows) // _MOST_COMPARED)
        verdict = masks.compare(rows[::step][:_MOST_COMPARED], fresh)
        reports = [rank for served in found.served for rank in served.ranks]
        return Record(
            cell=cell.name,
            mode=mode.name,
            is_checked=bool(chosen) and not is_endless,
            tokens_per_s=[r.tokens / r.wall_s for r in first],
            gpu_busy=[r.busy_s / r.wall_s for r in first],
            exposed_us=[(r.wall_s - r.busy_s) / r.steps * 1e6 for r in first],
            late_mask_us=[r.late_mask_s / r.steps * 1e6 for r in first],
            step_ms=[r.wall_s / r.steps * 1e3 for r in first],
            accepted=[r.tokens / r.steps / cell.batch - 1 for r in first],
            **_seen(found.served),
            mask_bytes=sum(r.shipped_bytes for r in reports),
            lost_drafts=sum(r.lost_drafts for r in reports),
            forbidden=sum(r.forbidden for r in reports),
            asked=dict(sum((Counter(r.asked) for r in first), Counter())),
            untimed=found.untimed,
            compared=verdict.compared,
            faults=verdict.faults,
        )


def _run(cell: Cell, mode: Mode, phases: Sequence[int], profile: str = "") -> Run:
    return Run(
        schemas=cell.schemas,
        batch=phases[0],
        then=list(phases[1:]),
        tokens=CHANGING_TOKENS if phases[1:] else 0,
        share=cell.share,
        backend=mode.backend,
        steps=cell.steps,
        method=cell.method,
        profile=profile,
    )


def _real(cell: Cell, mode: Mode, found: _Found) -> Record:
    """Return what whole batches showed, whose steps differ in their number of sequences."""
    all_served = found.served
    return Record(
        cell=cell.name,
        mode=mode.name,
        tokens_per_s=[served.tokens / served.wall_s for served in all_served],
        accepted=[statistics.fmean(served.accepted) for served in all_served if served.accepted],
        untimed=found.untimed,
        **_seen(all_served),
    )


def _seen(all_served: Sequence[Served]) -> dict[str, Any]:
    """Return what is seen from outside an engine, a value per repetition."""
    return {
        "token_p50_ms": [float(np.percentile(served.token_s, 50)) * 1e3 for served in all_served],
        "token_p99_ms": [float(np.percentile(served.token_s, 99)) * 1e3 for served in all_served],
        "cpu_s_per_1000": [served.cpu_s / served.tokens * 1000 for served in all_served],
    }


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def by_engines(cells: Iterable[Cell]) -> list[list[Cell]]:
    """Return cells in groups of those that share engines: each group is one session's."""
    groups: dict[tuple[object, ...], list[Cell]] = {}
    for cell in cells:
        groups.setdefault(cell.engine, []).append(cell)
    return list(groups.values())
