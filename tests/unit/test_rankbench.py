"""The benchmark's own parts: clock, documents, drafts, statistics and bars, without an engine."""

import itertools
import json
import random
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from rankbench import bars, clock, statistics
from rankbench.cells import BASELINE, OURS, UPSTREAM, Cell, default_cells, grid
from rankbench.clock import Costs, Event, Timeline
from rankbench.documents import TOKENS, document
from rankbench.instances import Instances
from rankbench.records import Journal, Record
from rankbench.schemas import schemas
from rankbench.speculation import ACCEPTANCE, Drafts

COSTS = Costs(launch_s=0, forward_s=0.02, sample_s=0.001, mask_row_s=0)


class FakeTime:
    """Passes only while somebody sleeps."""

    def __init__(self) -> None:
        self._now = 100.0

    def perf_counter(self) -> float:
        return self._now

    def sleep(self, seconds: float) -> None:
        self._now += seconds


@pytest.fixture(autouse=True)
def time(monkeypatch: pytest.MonkeyPatch) -> FakeTime:
    fake = FakeTime()
    monkeypatch.setattr(clock, "time", fake)
    return fake


def timeline(folder: Path, rank: int = 0, ranks: int = 1) -> Timeline:
    return Timeline(COSTS, folder / "timeline", rank, ranks)


def test_a_gpu_that_is_fed_in_time_is_never_idle(tmp_path: Path) -> None:
    gpu = timeline(tmp_path)
    for _ in range(3):
        gpu.sample(gpu.launch(), 0, 0, 0.002)
    steps = [gpu.at(number) for number in range(3)]
    assert steps[2].end - steps[0].start == pytest.approx(3 * 0.023)
    assert sum(step.busy_s for step in steps) == pytest.approx(3 * 0.023)
    assert sum(step.late_launch_s + step.late_mask_s for step in steps[1:]) == 0


def test_late_masks_and_late_launches_leave_the_gpu_idle(tmp_path: Path, time: FakeTime) -> None:
    gpu = timeline(tmp_path)
    first = gpu.launch()
    time.sleep(0.03)
    gpu.sample(first, 0, 0)
    assert gpu.at(first).late_mask_s == pytest.approx(0.01)
    Event(gpu, first, drafted=True).synchronize()
    time.sleep(0.01)
    second = gpu.launch()
    gpu.sample(second, 0, 0)
    assert gpu.at(second).late_launch_s == pytest.approx(0.01)


def test_all_ranks_wait_for_the_last_of_them(tmp_path: Path, time: FakeTime) -> None:
    one, other = (timeline(tmp_path, rank, 2) for rank in range(2))
    one.sample(one.launch(), 0, 0)
    late = other.launch()
    time.sleep(0.03)
    other.sample(late, 0, 0)
    assert one.at(0) == other.at(0)
    assert one.at(0).late_mask_s == pytest.approx(0.01)


def test_an_event_is_over_when_the_gpu_is(tmp_path: Path, time: FakeTime) -> None:
    gpu = timeline(tmp_path)
    gpu.sample(gpu.launch(), 0, 0)
    Event(gpu, 0).synchronize()
    assert time.perf_counter() >= gpu.at(0).sampled


@pytest.mark.parametrize("name", ["plain", "nested", "bounded", "public"])
def test_documents_are_valid_and_schemas_differ(name: str) -> None:
    found = []
    for schema, number in zip(schemas(name), range(12), strict=False):
        instance = Instances(schema, random.Random(number), 3).draw()
        jsonschema.validate(instance, schema)
        found.append(json.dumps(schema))
    assert len(set(found)) == 12


def test_schemas_of_the_test_suite_join_the_public_set(tmp_path: Path) -> None:
    (tmp_path / "draft2020-12").mkdir()
    objects = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "properties": {"a": {"type": "string"}},
    }
    cases = [{"description": "d", "schema": schema, "tests": []} for schema in (True, objects, objects)]
    (tmp_path / "draft2020-12" / "a.json").write_text(json.dumps(cases))
    found = list(itertools.islice(schemas("public", tmp_path), 6))
    assert found.count({"properties": {"a": {"type": "string"}}}) == 1
    assert found[1:] == list(itertools.islice(schemas("public"), 5))
    with pytest.raises(FileNotFoundError):
        next(schemas("public", tmp_path / "draft2020-12"))


@pytest.mark.parametrize(
    "schema",
    [
        {"items": {"type": "string"}},
        {"prefixItems": [{"type": "integer"}, {"type": "string"}], "items": {"type": "boolean"}},
        {"required": ["a"], "properties": {"a": True}},
        {"minLength": 3},
    ],
)
def test_schemas_without_a_type_have_documents(schema: dict[str, Any]) -> None:
    jsonschema.validate(Instances(schema, random.Random(0), 3).draw(), schema)
    tokens = document(schema, lambda text: [ord(character) for character in text], random.Random(0))
    assert len(tokens) == TOKENS


def test_a_document_is_long_enough_that_no_sequence_ends() -> None:
    schema = next(schemas("plain"))
    tokens = document(schema, lambda text: [ord(character) for character in text[::4]], random.Random(0))
    assert len(tokens) == TOKENS


def test_drafts_are_right_as_often_as_they_say_and_the_same_for_all() -> None:
    documents = np.random.default_rng(0).integers(3, 1000, (40, TOKENS))
    drafts = Drafts.make(documents, 3)
    assert (drafts.right == Drafts.make(documents, 3).right).all()
    expected = ACCEPTANCE + ACCEPTANCE**2 + ACCEPTANCE**3
    assert drafts.right[:, :-4].mean() == pytest.approx(expected, rel=0.03)
    for document_, position in ((0, 5), (7, 100), (39, 200)):
        true = documents[document_, position : position + 3]
        equal = (drafts.tokens[document_, position] == true).tolist()
        right = int(drafts.right[document_, position])
        assert equal[:right] == [True] * right
        assert right == 3 or not equal[right]


def test_a_paired_ratio_is_not_moved_by_what_disturbs_both() -> None:
    disturbed = [100.0, 50.0, 80.0, 20.0]
    ratio = statistics.paired_ratio([0.9 * value for value in disturbed], disturbed)
    assert ratio.low == pytest.approx(0.9)
    assert ratio.high == pytest.approx(0.9)
    wide = statistics.paired_ratio([90.0, 110.0, 95.0], [100.0, 100.0, 100.0])
    assert wide.low < wide.value < wide.high


def records(ours: float, busy: float, upstream: float = 100.0, **more: object) -> bars.Records:
    cell = Cell(1, 3, 64, "plain", 1.0).name
    speeds = {BASELINE.name: 200.0, UPSTREAM[0].name: upstream, OURS.name: ours}
    made = {
        mode: Record(cell=cell, mode=mode, tokens_per_s=[speed] * 3, gpu_busy=[busy] * 3)
        for mode, speed in speeds.items()
    }
    made[OURS.name] = Record(cell=cell, mode=OURS.name, tokens_per_s=[ours] * 3, gpu_busy=[busy] * 3, **more)
    return {cell: made}


def missed(found: bars.Records, before: bars.Records | None = None) -> list[str]:
    return [outcome.asks for outcome in bars.outcomes(found, before or {}) if outcome.met is False]


def test_bars_are_met_and_missed() -> None:
    assert missed(records(199.0, 0.99)) == []
    assert any("GPU-busy >= 0.98" in asks for asks in missed(records(199.0, 0.97)))
    assert any("guided over unguided" in asks for asks in missed(records(190.0, 0.99)))
    slower = records(199.0, 0.99, upstream=210.0)
    assert any("none below" in asks for asks in missed(slower))
    assert any("none below" in asks for asks in missed(records(199.0, 0.99), before=slower))


def test_a_wrong_mask_or_one_from_the_engine_core_fails_the_run() -> None:
    assert any("fresh matcher" in asks for asks in missed(records(199.0, 0.99, faults=["row"])))
    assert any("fresh matcher" in asks for asks in missed(records(199.0, 0.99, lost_drafts=1)))
    assert any("fresh matcher" in asks for asks in missed(records(199.0, 0.99, is_checked=True)))
    assert any("to its end" in asks for asks in missed(records(199.0, 0.99, failed=True)))
    assert any("mask bytes" in asks for asks in missed(records(199.0, 0.99, mask_bytes=1)))


def test_a_run_goes_on_where_it_stopped(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "records.jsonl")
    journal.append(Record(cell="a", mode="b", tokens_per_s=[1.0]))
    assert list(Journal(tmp_path / "records.jsonl")) == [Record(cell="a", mode="b", tokens_per_s=[1.0])]


def test_the_rows_of_the_bars_are_in_the_grid() -> None:
    assert set(default_cells()) <= set(grid())
