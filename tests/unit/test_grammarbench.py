"""The benchmark of prepares: its bars judge what they say, and a run goes on where it stopped."""

from typing import Any

import pytest
from grammarbench import bars
from grammarbench.records import Record, Records, Sample, Usage


def test_a_percentile_is_a_value_that_was_measured() -> None:
    values = [float(number) for number in range(1, 101)]

    assert [bars.percentile(values, share) for share in (0.5, 0.95, 0.99, 1)] == [50, 95, 99, 100]
    assert bars.percentile([7.0], 0.99) == 7


def records(tmp_path: Any, **times_ms: dict[str, float]) -> Records:
    made = Records(tmp_path / "records.json")
    for name, stages in times_ms.items():
        samples = [Sample(stage, "small", ms / 1e3, "guidance", True) for stage, ms in stages.items()]
        refused = Sample("cold", "small", 9.0, "grammar_unsupported", False)
        made.add(Record({"auto": "Auto", "fast": "Auto, no proof"}.get(name, name), [*samples, refused]))
    return made


@pytest.mark.parametrize(
    ("times", "met"),
    [
        (({"cold": 90, "memory": 0.5}, {"cold": 40}, {"cold": 1000}), [True, True, True, True, True]),
        (({"cold": 110, "memory": 1.5}, {"cold": 60}, {"cold": 72}), [False, False, False, False, False]),
        (({"cold": 90}, {}, {}), [None, None, None, True, None]),
    ],
)
def test_bars(tmp_path: Any, monkeypatch: pytest.MonkeyPatch, times: Any, met: list[bool]) -> None:
    auto, fast, upstream = times
    monkeypatch.setattr(bars.os, "cpu_count", lambda: 4)
    found = bars.bars(records(tmp_path, auto=auto, fast=fast, upstream=upstream))

    assert [bar.met for bar in found[:5]] == met
    assert found[5].met is None


def test_a_request_may_begin_before_the_proof(tmp_path: Any) -> None:
    """What upstream compiles its scheduler may use; ours may begin as soon as ranks have loaded it."""
    made = records(tmp_path, upstream={"cold": 10})
    made.add(Record("Auto", [Sample("cold", "small", 0.04, "guidance", True, 0.014)]))
    assert bars.bars(made)[1].met


@pytest.mark.parametrize(("finished", "met"), [(99, True), (98, False)])
def test_of_what_is_served_walks_come_to_the_end(tmp_path: Any, finished: int, met: bool) -> None:  # noqa: FBT001 - a case
    made = records(tmp_path)
    proofs = {"finished": finished, "unfinished": 100 - finished, "refused": 30}
    made.add(Record("Auto", [], proofs))
    assert [bar.met for bar in bars.bars(made) if "whole text" in bar.asks] == [met]


def test_a_run_goes_on_with_what_its_file_holds(tmp_path: Any) -> None:
    usage = dict.fromkeys(Usage.__struct_fields__, 1)
    made = records(tmp_path, auto={"cold": 1})
    made.usage = Usage(**usage)
    made.burst = [0.3]
    made.save()

    again = Records(tmp_path / "records.json")

    assert again.modes == made.modes
    assert again.usage == made.usage
    assert again.burst == made.burst


@pytest.mark.parametrize(
    ("fields", "met"),
    [
        ({}, True),
        ({"memory_after": 300 << 20}, False),
        ({"refused": 1}, False),
    ],
)
def test_what_many_schemas_leave_is_bounded(tmp_path: Any, fields: Any, *, met: bool) -> None:
    made = records(tmp_path)
    none = dict.fromkeys(Usage.__struct_fields__, 0)
    made.usage = Usage(**{**none, "schemas": 100_000, "took_s": 1.0, "memory_before": 200 << 20, **fields})
    if "memory_after" not in fields:
        made.usage.memory_after = 210 << 20

    assert bars.bars(made)[6].met == met


@pytest.mark.parametrize(("slowest_s", "met"), [(4.9, True), (5.1, False)])
def test_new_schemas_of_many_clients_wait_at_most_five_seconds(
    tmp_path: Any, slowest_s: float, *, met: bool
) -> None:
    made = records(tmp_path)
    made.burst = [0.01] * 98 + [slowest_s] * 2
    assert bars.bars(made)[-1].met is met
