"""What logits processors may take of a rank's steps, and what is told of those that take or do too much."""

import time
from collections.abc import Sequence
from typing import Any

import pytest

from guided_contract.config import LogitsProcessorConfig
from guided_contract.records import ProcessorFailure, ProcessorTimes
from guided_engine.processors.interface import Edits, Params, ProcessorFactory, SequenceInfo
from support.odd_processors import Same
from support.rank import A, Rank, arrival

TRACE = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "tracestate": "a=b"}
FAILS = LogitsProcessorConfig(name="fails", factory=f"{__name__}:Fails")


class TakesParams(Params):
    cpu_ms: int = 0
    asleep_ms: int = 0


class Takes(ProcessorFactory[TakesParams]):
    """Takes its time for each call; a request says how much."""

    Params = TakesParams
    request_params = frozenset({"cpu_ms", "asleep_ms"})

    def create(self, sequence: SequenceInfo[TakesParams]) -> Same:
        return Taking(sequence.params)


class Taking(Same):
    def __init__(self, params: TakesParams) -> None:
        super().__init__(Edits.add([5], 1.0))
        self._params = params

    def prepare(self, ahead: Sequence[int]) -> list[Any]:
        until = time.thread_time_ns() + self._params.cpu_ms * 1_000_000
        while time.thread_time_ns() < until:
            pass
        time.sleep(self._params.asleep_ms / 1000)
        return super().prepare(ahead)


class FailsParams(Params):
    at_once: bool = False


class Fails(ProcessorFactory[FailsParams]):
    """Fails after its first token, or when it is made."""

    Params = FailsParams
    request_params = frozenset({"at_once"})

    def create(self, sequence: SequenceInfo[FailsParams]) -> Same:
        if sequence.params.at_once:
            raise LookupError("secret prompt")
        return Failing(None)


class Failing(Same):
    class RefusalError(Exception):
        pass

    def accept(self, tokens: Sequence[int]) -> None:
        raise self.RefusalError(f"secret {tokens}")


TAKES = LogitsProcessorConfig(name="takes", factory=f"{__name__}:Takes")


def asked(request_id: str, **params: int) -> Any:
    arguments = {f"takes.{name}": value for name, value in params.items()}
    return arrival(request_id, None, is_guided=False, arguments=arguments)


def times(rank: Rank) -> list[tuple[str, int, int]]:
    found = [each for record in rank.records if isinstance(record, ProcessorTimes) for each in record.times]
    return [
        (name, sum(each.steps for each in found), sum(each.over_budget for each in found))
        for name in {each.name for each in found}
    ]


def failures(rank: Rank) -> list[ProcessorFailure]:
    return [record for record in rank.records if isinstance(record, ProcessorFailure)]


@pytest.mark.parametrize("params", [{"cpu_ms": 30}, {"asleep_ms": 30}], ids=str)
def test_a_step_of_much_cpu_time_is_counted_and_ends_nothing(params: Any) -> None:
    rank = Rank([TAKES])
    rank.step([asked("r", **params)])
    rank.guide.edits()
    assert rank.sampled(r=[7]) == {}
    rank.step(finished=["r"])
    assert times(rank) == [("takes", 1, "cpu_ms" in params)]


@pytest.mark.parametrize("at_once", [False, True])
@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_a_failure_is_told_once_with_its_place_and_without_what_it_says(
    *, is_async: bool, at_once: bool
) -> None:
    rank = Rank([TAKES, FAILS], is_async=is_async, number=4)
    given = {"fails.at_once": at_once}
    rank.step([arrival("r", None, is_guided=False, arguments=given)])
    rank.guide.edits()
    rank.sampled(r=[7])
    rank.step(computed={"r": 3}, scheduled={"r": 1})
    rank.guide.edits()
    rank.sampled(r=[8])
    rank.step(finished=["r"])
    [failure] = failures(rank)
    assert failure == ProcessorFailure(rank=4, processors=["fails"], code="sequence_processor_failed")
    assert "secret" not in repr(rank.records)


def test_a_sequence_that_ends_in_the_step_that_finds_its_failure_is_told_of_too() -> None:
    rank = Rank([FAILS], is_async=False)
    rank.step([arrival("r", rank.load("ab"))])
    rank.sampled(r=[A])
    rank.step(finished=["r"])
    assert len(failures(rank)) == 1
