"""Logits processors that do what none should: their request ends alone, and the batch is as without them."""

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

from guided_contract.config import LogitsProcessorConfig
from guided_contract.records import ProcessorFailure, ProcessorTimes
from guided_engine.processors import dense
from guided_engine.processors.edits import Edits
from guided_engine.processors.interface import (
    Context,
    Params,
    ProcessorFactory,
    SequenceInfo,
    SequenceProcessor,
)
from guided_engine.processors.registry import Registry
from support.odd_processors import Same, Waves
from support.rank import A, Rank, arrival

FAILED = "sequence_processor_failed"


class PanicError(BaseException):
    """As pyo3's PanicException, no Exception; and without words."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


def panic(*_arguments: Any) -> Any:
    raise PanicError


def talk(*_arguments: Any) -> Any:
    raise ValueError("secret" * 2_000_000)


def only(how: Any) -> Callable[[int], list[Edits]]:
    return lambda rows: [Edits(np.array([5]), np.array([1.0]), is_only=how)] * rows


# Numbers that no row takes: tests/unit/test_processor_edits.py.
WAYS: dict[str, Callable[[int], Any]] = {
    "a panic": panic,
    "a long story": talk,
    "only this, as nothing": only(None),
    "only this, as an array": only(np.array([True, False])),
    "a wrong number": lambda rows: [Edits.add([5], [np.nan])] * rows,
}


class HostileParams(Params):
    way: str = ""


class Hostile(ProcessorFactory[HostileParams]):
    """Its sequences return what the way says, or come to an end of their own."""

    Params = HostileParams

    def create(self, sequence: SequenceInfo[HostileParams]) -> SequenceProcessor:
        if sequence.params.way == "create":
            raise PanicError
        return Returns(WAYS[sequence.params.way])


class Returns(Same):
    """Each row as a function makes it, of how many there are."""

    def prepare(self, ahead: Sequence[int]) -> Any:
        return self._row(1 + len(ahead))

    def release(self) -> None:
        raise PanicError


class Plain(ProcessorFactory[Params]):
    """Adds 1 to token 9; knows who is alive."""

    alive: ClassVar[list[Any]] = []
    closed: ClassVar[list[Any]] = []

    def create(self, _sequence: SequenceInfo[Params]) -> SequenceProcessor:
        self.alive.append(PlainState(Edits.add([9], 1.0)))
        return self.alive[-1]

    def close(self) -> None:
        self.closed.append(self)
        raise PanicError


class PlainState(Same):
    def release(self) -> None:
        Plain.alive.remove(self)


class SharesABuffer(ProcessorFactory[Params]):
    """Its sequences write into one array; that of "s" writes what no vocabulary has."""

    def __init__(self, params: Params, context: Context) -> None:
        super().__init__(params, context)
        self.ids = np.zeros(1, np.int32)

    def create(self, sequence: SequenceInfo[Params]) -> SequenceProcessor:
        def write(rows: int) -> list[Edits]:
            self.ids[0] = 1_000_000 if sequence.request_id == "s" else 5
            return [Edits(self.ids, np.ones(1))] * rows

        return Returns(write)


def config(name: str, factory: type[ProcessorFactory[Any]], **params: Any) -> LogitsProcessorConfig:
    return LogitsProcessorConfig(name=name, factory=f"{__name__}:{factory.__name__}", params=params)


PLAIN = config("plain", Plain)


@pytest.fixture(autouse=True)
def _none_alive() -> None:
    Plain.alive.clear()
    Plain.closed.clear()


def changes(rank: Rank) -> dict[str, Any]:
    found = rank.guide.edits()
    assert found is not None
    return {name: (one.ids.tolist(), one.values.tolist(), one.is_only) for name, _, one in found.each()}


@pytest.mark.parametrize("way", WAYS)
def test_its_request_ends_alone_in_few_words(caplog: pytest.LogCaptureFixture, way: str) -> None:
    rank = Rank([config("hostile", Hostile, way=way), PLAIN], rank=4)
    chosen = {"logits_processors": "plain"}
    hostile = arrival("r", None, is_guided=False, arguments={"logits_processors": "hostile"})
    unguided = arrival("t", None, is_guided=False, arguments=chosen)
    rank.step([hostile, arrival("s", rank.load("ab"), arguments=chosen), unguided])
    assert changes(rank) == {"s": ([9], [1.0], False), "t": ([9], [1.0], False)}
    assert rank.sampled(r=[7], s=[A], t=[7]) == {"r": FAILED}
    rank.step(finished="rst")
    assert not Plain.alive
    assert sum(len(record.getMessage()) for record in caplog.records) < 10_000
    [failure] = [record for record in rank.records if isinstance(record, ProcessorFailure)]
    assert failure == ProcessorFailure(rank=4, processors=["hostile"], code=FAILED)
    assert "secret" not in repr(rank.records)
    times = [each for record in rank.records if isinstance(record, ProcessorTimes) for each in record.times]
    assert {each.name: each.steps for each in times}["plain"] == 1


def test_what_was_made_before_a_factory_raises_is_released() -> None:
    rank = Rank([PLAIN, config("hostile", Hostile, way="create")])
    rank.step([arrival("r", None, is_guided=False)])
    assert rank.sampled(r=[7]) == {"r": FAILED}
    assert not Plain.alive


def test_what_was_checked_is_what_is_applied() -> None:
    """An array that another sequence changes afterwards could name a place outside the logits."""
    rank = Rank([config("shares", SharesABuffer)])
    rank.step([arrival(name, None, is_guided=False) for name in "rs"])
    assert changes(rank) == {"r": ([5], [1.0], False)}
    assert rank.sampled(r=[7], s=[7]) == {"s": FAILED}


def test_each_factory_is_closed_whatever_another_raises() -> None:
    Registry([PLAIN, config("other", Plain)], Context(vocab_size=10)).close()
    assert len(Plain.closed) == 2


@pytest.mark.parametrize(
    "ends",
    [
        panic,
        lambda logits: logits.resize_(1, 3),
        lambda logits: logits.set_(torch.zeros(2, 2)),
        lambda logits: setattr(logits, "data", logits.double()),
    ],
)
def test_an_apply_that_raises_ends_its_own_sequences_and_changes_nothing(
    ends: Callable[[Any], Any],
) -> None:
    def apply(logits: Any, _rows: Sequence[Any]) -> None:
        logits.fill_(3)
        ends(logits)

    factory: Any = SimpleNamespace(apply=apply)
    logits = torch.arange(12.0).reshape(3, 4)
    codes = dense.tried(factory, [0, 0], logits, torch.tensor([0, 2]))
    assert codes.tolist() == [dense.IS_WRONG] * 2
    assert torch.equal(logits, torch.arange(12.0).reshape(3, 4))


def test_many_rows_are_given_in_parts_and_come_out_as_if_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    factory = Waves(Params(), Context(vocab_size=50))
    results = [(row, row * row) for row in range(9)]
    index = torch.tensor([4, 0, 8, 2, 1, 7, 3, 6, 5])
    at_once = torch.randn(9, 50, generator=torch.Generator().manual_seed(0))
    in_parts = at_once.clone()
    codes = dense.apply(factory, results, at_once, index)
    monkeypatch.setattr(dense, "_MOST_BYTES_ON_CPU", 4 * 4 * 50)
    assert torch.equal(dense.apply(factory, results, in_parts, index), codes)
    assert torch.equal(in_parts, at_once)
