"""Real engines that take turns: what each mode serves, and its row of a table."""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from rankbench import statistics
from rankbench.cells import BASELINE, Mode
from rankbench.programs import Program
from rankbench.protocol import Failed, Run, Served

_REPETITIONS: Final = 5  # REPS


def measured(
    modes: Sequence[Mode], programs: Mapping[str, Program], run_of: Callable[[Mode], Run]
) -> dict[str, list[Served]]:
    """Have every mode serve its run once in each repetition; return what it served, by mode."""
    found: dict[str, list[Served]] = {mode.name: [] for mode in modes}
    for repetition in range(int(os.environ.get("REPS", _REPETITIONS)) + 1):
        for mode in modes:
            served = programs[mode.engine].serve(run_of(mode))
            if isinstance(served, Failed):
                raise SystemExit(f"{mode.name}: {served.reason}")
            if repetition:  # the first compiles
                found[mode.name].append(served)
    return found


def rows(found: Mapping[str, Sequence[Served]]) -> list[str]:
    """Return each mode's name and tokens, tok/s, these as a share of the unguided, and CPU seconds."""
    baseline = [served.tokens / served.wall_s for served in found[BASELINE.name]]
    lines = []
    for name, all_served in found.items():
        speeds = [served.tokens / served.wall_s for served in all_served]
        ratio = statistics.paired_ratio(speeds, baseline)
        cpu = statistics.mean([served.cpu_s / served.tokens * 1000 for served in all_served])
        lines.append(
            f"| {name} | {all_served[0].tokens} | {statistics.mean(speeds).value:.0f} "
            f"| {ratio.value:.3f} ({ratio.low:.3f} to {ratio.high:.3f}) | {cpu.value:.3f} |"
        )
    return lines
