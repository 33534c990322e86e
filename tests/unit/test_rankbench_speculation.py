"""The parts of `make bench-speculation`: what drafting costs and its bars."""

import itertools
import re
from pathlib import Path

import msgspec
import pytest
from rankbench import drafting, speculation_bars
from rankbench.cells import (
    ALWAYS,
    AUTO,
    BASELINE,
    BY_HAND,
    OURS,
    OURS_SYNC,
    UPSTREAM,
    UPSTREAM_SYNC,
    Mode,
)
from rankbench.clock import Costs
from rankbench.methods import METHODS
from rankbench.protocol import Failed, Served
from rankbench.records import Record
from rankbench.speculating import CHOOSING, COSTS, MODES, default_cells, known_cells
from rankbench.window import Report

AT = "k3-b64-plain"
MEASURED = {BASELINE: 100.0, OURS: 99.0, OURS_SYNC: 80.0, UPSTREAM[0]: 50.0, UPSTREAM_SYNC[0]: 40.0}


@pytest.mark.parametrize("is_ours", [True, False], ids=["ours", "upstream"])
@pytest.mark.parametrize("method", METHODS)
def test_what_the_scheduler_does_not_ask_for_costs_what_vllm_lets_it_cost(
    method: str, *, is_ours: bool
) -> None:
    """docs/api.md says of disableAbove: all passes behind the first are saved. Upstream: EAGLE-3's alone."""
    whole, dropped = (
        METHODS[method].draft_s(COSTS, 3, asked_for, 256, 64, is_ours=is_ours) for asked_for in (3, 0)
    )
    assert whole > 0
    is_saved = method == "eagle3" or (method == "draft" and is_ours)
    assert dropped == (METHODS[method].first_s if is_saved else whole)


def test_a_pass_takes_longer_once_the_device_is_full() -> None:
    assert COSTS.pass_s(0.012, 1) == COSTS.pass_s(0.012, 300) == 0.012
    assert COSTS.pass_s(0.012, 600) == pytest.approx(0.024)
    assert Costs().pass_s(0.012, 10_000) == 0.012


def step_s(method: str, configured: int, asked_for: int, batch: int) -> float:
    tokens = batch * (1 + asked_for)
    draft_s = 0.0
    if configured:
        draft_s = METHODS[method].draft_s(COSTS, configured, asked_for, tokens, batch, is_ours=True)
    return COSTS.pass_s(COSTS.forward_s, tokens) + COSTS.sample_s + draft_s


@pytest.mark.parametrize(
    ("method", "count", "row"),
    [
        ("draft", 1, "| `DraftModel`, 1 |"),
        ("draft", 3, "| `DraftModel`, 3 |"),
        ("eagle3", 3, "| `Eagle3`, or `MTP` of one layer, 3 |"),
        ("ngram", 3, "| `NGram`, 3, where the prompt has the schema of JSON |"),
    ],
)
def test_what_the_page_says_is_what_the_clock_says(method: str, count: int, row: str) -> None:
    page = (Path(__file__).parents[2] / "docs/speculation.md").read_text()
    told = re.findall(r"0\.\d\d|[12]\.\d\d", page.partition(row)[2].partition("\n")[0])
    made = sum(METHODS[method].acceptance ** place for place in range(count + 1))
    cases = [*((count, made, batch) for batch in (64, 128, 256)), (0, 1.0, 256)]
    worth = [
        tokens * step_s(method, 0, 0, batch) / step_s(method, count, asked_for, batch)
        for asked_for, tokens, batch in cases
    ]
    assert told == [f"{ratio:.2f}" for ratio in worth]


def records(cell: str = AT, **speeds: float) -> speculation_bars.Records:
    """Return one cell's records, some modes' tokens a second changed by their engines' names."""
    made = {}
    for mode, speed in MEASURED.items():
        name = f"{'guided' if mode.backend != 'none' else 'unguided'}_{mode.engine}".replace("-", "_")
        made[mode.name] = record(cell, mode, speeds.get(name, speed))
    return {cell: made}


def record(cell: str, mode: Mode, speed: float, **more: object) -> Record:
    return Record(
        cell=cell,
        mode=mode.name,
        tokens_per_s=[speed] * 3,
        **{"accepted": [1.2] * 3, **more},
    )


def missed(found: speculation_bars.Records) -> list[str]:
    return [outcome.asks for outcome in speculation_bars.outcomes(found) if outcome.met is False]


def test_bars_are_met_and_missed() -> None:
    assert missed(records()) == []
    assert missed(records(guided_ours=96.0)) == ["ours >= 0.97 of unguided"]
    assert missed(records(guided_upstream_xgrammar_sync=70.0)) == ["ours >= 1.5 times upstream, sync"]
    assert missed(records(guided_ours_sync=102.0)) == ["ours: async >= 0.98 of sync, in every cell"]
    ngram = records("ngram-k3-b64-plain", guided_ours_sync=95.0)
    assert missed(ngram) == ["NGram: async >= 1.1 times sync"]


def test_either_of_two_cells_is_enough_against_upstream_async() -> None:
    full = records("k3-b256-plain", guided_upstream_xgrammar_async=90.0)
    assert any("1.2 times" in asks for asks in missed(full))
    assert missed({**full, **records("k3-b64-bounded")}) == []


def test_a_draft_that_guiding_costs_is_seen() -> None:
    found = {mode.name: record(AT, mode, speed) for mode, speed in MEASURED.items()}
    asks = ["as many drafts accepted guided as unguided, and no right one refused"]
    assert missed({AT: {**found, OURS.name: record(AT, OURS, 99.0, accepted=[1.1] * 3)}}) == asks
    assert missed({AT: {**found, OURS.name: record(AT, OURS, 99.0, lost_drafts=1)}}) == asks


def test_the_number_of_drafts_by_load_is_held_against_the_best_fixed_one() -> None:
    chosen = speculation_bars.by_load(8, "eagle3").name
    fixed = {
        mode.name: record(chosen, mode, speed) for mode, speed in zip(ALWAYS, (90, 100, 80), strict=True)
    }
    assert not missed({chosen: {**fixed, AUTO.name: record(chosen, AUTO, 98.0)}})
    lost = {**fixed, AUTO.name: record(chosen, AUTO, 96.0)}
    assert missed({chosen: lost}) == ["K by load >= 0.97 of the best fixed K"]
    failed = ALWAYS[0].name  # it might have been the best
    assert not missed({chosen: {**lost, failed: msgspec.structs.replace(lost[failed], tokens_per_s=[])}})
    del lost[failed]
    assert not missed({chosen: lost})


def test_it_is_held_against_a_schedule_by_hand_on_a_load_that_changes() -> None:
    changing = speculation_bars.by_load(0, "draft").name
    found = {BY_HAND.name: record(changing, BY_HAND, 100.0), AUTO.name: record(changing, AUTO, 101.0)}
    assert not missed({changing: found})
    found[AUTO.name] = record(changing, AUTO, 99.0)
    assert missed({changing: found}) == ["K by load better than a schedule by hand, on a load that changes"]


def test_engines_draft_as_each_mode_says() -> None:
    cell = speculation_bars.by_load(0, "draft")
    largest = max(cell.phases)
    specs = {mode: drafting.of(cell, mode, largest) for mode in CHOOSING}
    assert [specs[mode]["drafts"] for mode in ALWAYS] == [0, 1, 3]
    assert not any("schedule" in specs[mode] for mode in ALWAYS)
    assert specs[AUTO]["is_by_load"]
    assert {number for _, _, number in specs[AUTO]["schedule"]} == {0, 1, 3}
    assert specs[BY_HAND]["schedule"] == [(1, 32, 3), (33, 33, 0)]
    assert len({mode.engine for mode in (*MODES, *CHOOSING)}) == len({m.engine for m in MODES}) + len(
        CHOOSING
    )


def served(asked: dict[int, int]) -> Served:
    """Return a batch with so many steps of each number of draft tokens."""
    none = dict.fromkeys(
        ("wall_s", "busy_s", "late_launch_s", "late_mask_s", "shipped_bytes", "lost_drafts", "forbidden"), 0
    )
    report = Report(steps=sum(asked.values()), tokens=1, rows=[], asked=asked, **none)
    return Served(tokens=1, cpu_s=0, wall_s=1, ranks=[report])


def test_a_choice_is_settled_once_two_batches_had_it() -> None:
    batches = [
        served({3: 40}),
        served({1: 50, 3: 14}),
        served({1: 64}),
        served({1: 60, 0: 4}),
        served({3: 64}),
    ]
    assert drafting.settled(iter(batches).__next__) == (1, 4)


def test_a_choice_that_is_never_settled_fails() -> None:
    batches = itertools.cycle([served({3: 64}), served({1: 64})])
    assert isinstance(drafting.settled(batches.__next__), Failed)
    refused = Failed(reason="ended")
    assert drafting.settled(lambda: refused) is refused


def test_each_cell_has_a_name_of_its_own() -> None:
    cells = set(known_cells())
    assert set(default_cells()) <= cells
    assert len({cell.name for cell in cells}) == len(cells)
