"""The page of a run: a table of each cell, and its bars."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from judged import Bar, table

from rankbench import statistics
from rankbench.cells import BASELINE, OURS, UPSTREAM, UPSTREAM_SYNC, Cell, Mode
from rankbench.measure import Record

Records = Mapping[str, Mapping[str, Record]]  # cell -> mode -> record
BETTER: Final = (*UPSTREAM, *UPSTREAM_SYNC)  # of all ways of upstream, the fastest


@dataclass(frozen=True, slots=True)
class Least:
    """What a mode's tokens a second are at least, as a multiple of those of the fastest of others.

    `cell` "": in each of them. `busy` is the share of time for which the GPU has to be busy.
    """

    cell: str
    ours: Mode
    theirs: Sequence[Mode]
    least: float
    busy: float = 0.0

    def judge(self, records: Records) -> Bar:
        """Judge a run."""
        others = self.theirs[0].name if len(self.theirs) == 1 else "the best of upstream"
        asks = f"{self.cell or 'each cell'}: {self.ours.name} >= {self.least} of {others}"
        if self.busy:
            asks += f", GPU busy >= {self.busy}"
        ratios = ratios_of(records, self.ours, self.theirs)
        chosen = {cell: ratio for cell, ratio in ratios.items() if self.cell in {"", cell}}
        if not chosen:
            return Bar(asks, "not measured", None)
        worst = min(chosen, key=lambda cell: chosen[cell].value)
        found = shown(chosen[worst]) + ("" if self.cell else f", {worst}")
        is_met = chosen[worst].value >= self.least
        if self.busy:
            busy = statistics.mean(records[worst][self.ours.name].gpu_busy).value
            found, is_met = f"{found}, {busy:.3f}", is_met and busy >= self.busy
        return Bar(asks, found, is_met)


def ratios_of(records: Records, ours: Mode, theirs: Sequence[Mode]) -> dict[str, statistics.Bounded]:
    """Return, by cell, a mode's tokens a second over those of the fastest of others."""
    found = {}
    for cell, modes in records.items():
        own = modes.get(ours.name)
        measured = [modes[mode.name] for mode in theirs if mode.name in modes and modes[mode.name].served]
        if own is not None and own.served and measured:
            best = max(measured, key=lambda record: statistics.mean(record.tokens_per_s).value)
            found[cell] = statistics.paired_ratio(own.tokens_per_s, best.tokens_per_s)
    return found


@dataclass(frozen=True, slots=True)
class MostThread:
    """What guiding may add to a step's CPU in the thread that launches kernels, microseconds."""

    cell: str
    most_us: int

    def judge(self, records: Records) -> Bar:
        """Judge a run."""
        asks = f"{self.cell}: thread CPU of a step, ours less unguided <= {self.most_us} us"
        modes = records.get(self.cell, {})
        both = [modes[mode.name].thread_us for mode in (OURS, BASELINE) if mode.name in modes]
        if len(both) < 2 or not all(both):
            return Bar(asks, "not measured", None)
        more = statistics.mean([a - b for a, b in zip(*both, strict=True)])
        return Bar(asks, f"{more.value:.0f} ({more.low:.0f} to {more.high:.0f})", more.value <= self.most_us)


def right(records: Records) -> Bar:
    """Judge that what was measured is right: all served, and nothing right refused."""
    found = [record for modes in records.values() for record in modes.values()]
    wrong = [f"{record.cell}, {record.mode}: {record.reason}" for record in found if record.failed]
    wrong += [
        f"{record.cell}, {record.mode}: {served.forbidden} tokens forbidden, {served.lost_drafts} drafts lost"
        for record in found
        for served in record.served
        if served.forbidden or (served.lost_drafts and record.mode.startswith(OURS.name))
    ]
    return Bar("every batch served, no right token or draft refused", "; ".join(wrong) or "yes", not wrong)


def cpu_of_ranks(records: Records) -> Bar:
    """Judge what more ranks cost."""
    asks = "TP 4, k=3, B=64: CPU of ours less that of unguided <= 1.5 times that at TP 1"
    costs = []
    for ranks in (1, 4):
        modes = records.get(Cell(ranks, 3, 64, "plain").name, {})
        both = [modes[mode.name].cpu_s_per_1000 for mode in (OURS, BASELINE) if mode.name in modes]
        if len(both) == 2 and all(both):
            ours, unguided = (statistics.mean(each).value for each in both)
            costs.append(ours - unguided)
    if len(costs) < 2:
        return Bar(asks, "not measured", None)
    found = f"{costs[1] / costs[0]:.2f} ({costs[0]:.3f} and {costs[1]:.3f} s per 1,000 tokens)"
    return Bar(asks, found, costs[1] <= 1.5 * costs[0])


def shown(bounded: statistics.Bounded) -> str:
    """Return an estimate with its bounds."""
    return f"{bounded.value:.3f} ({bounded.low:.3f} to {bounded.high:.3f})"


def page(conditions: Sequence[str], records: Records, bars: Sequence[Bar]) -> str:
    """Return the run's page, as Markdown."""
    return "\n".join([*conditions, "", *_tables(records), *table(bars)])


def _tables(records: Records) -> Iterator[str]:
    for cell, modes in records.items():
        yield f"**{cell}**\n"
        yield (
            "| mode | tok/s | of unguided (95 %) | GPU busy | step, ms | masks late, us a step "
            "| thread CPU, us a step | CPU s per 1,000 tok |"
        )
        yield "|---" * 8 + "|"
        baseline = modes.get(BASELINE.name)
        for record in modes.values():
            yield f"| {record.mode} | {' | '.join(_cells(record, baseline))} |"
        yield ""


def _cells(record: Record, baseline: Record | None) -> list[str]:
    if not record.served:
        return [record.reason, *[""] * 6]
    windows = [served.window for served in record.served if served.window]
    ratio = ""
    if baseline is not None and len(baseline.served) == len(record.served):
        ratio = shown(statistics.paired_ratio(record.tokens_per_s, baseline.tokens_per_s))
    return [
        f"{statistics.mean(record.tokens_per_s).value:.0f}",
        ratio,
        f"{statistics.mean(record.gpu_busy).value:.3f}",
        f"{statistics.mean([one.wall_s / one.steps * 1e3 for one in windows]).value:.2f}",
        f"{statistics.mean([one.late_mask_s / one.steps * 1e6 for one in windows]).value:.0f}",
        f"{statistics.mean(record.thread_us).value:.0f}",
        f"{statistics.mean(record.cpu_s_per_1000).value:.3f}",
    ]
